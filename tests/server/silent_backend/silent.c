// A backend that copies its input to its output, 20 ms for each batch. It never calls
// TRITONBACKEND_ModelInstanceReportStatistics, so Triton counts none of its requests. With -DREPORTS it calls it.
//
// The declarations are those of triton/core/tritonbackend.h, which the server image doesn't contain.
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef struct TRITONSERVER_Error TRITONSERVER_Error;
typedef struct TRITONBACKEND_Input TRITONBACKEND_Input;
typedef struct TRITONBACKEND_ModelInstance TRITONBACKEND_ModelInstance;
typedef struct TRITONBACKEND_Output TRITONBACKEND_Output;
typedef struct TRITONBACKEND_Request TRITONBACKEND_Request;
typedef struct TRITONBACKEND_Response TRITONBACKEND_Response;
enum { CPU = 0, FINAL = 1, RELEASE_ALL = 1 };

TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request*, uint32_t, TRITONBACKEND_Input**);
TRITONSERVER_Error* TRITONBACKEND_InputProperties(
    TRITONBACKEND_Input*, const char** name, int* type, const int64_t** shape, uint32_t* dims, uint64_t* bytes,
    uint32_t* buffers);
TRITONSERVER_Error* TRITONBACKEND_InputBuffer(
    TRITONBACKEND_Input*, uint32_t index, const void** buffer, uint64_t* bytes, int* memory, int64_t* memory_id);
TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response**, TRITONBACKEND_Request*);
TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(
    TRITONBACKEND_Response*, TRITONBACKEND_Output**, const char* name, int type, const int64_t* shape, uint32_t dims);
TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(
    TRITONBACKEND_Output*, void** buffer, uint64_t bytes, int* memory, int64_t* memory_id);
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response*, uint32_t flags, TRITONSERVER_Error*);
TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request*, uint32_t flags);
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request*, bool success, uint64_t start, uint64_t compute_start,
    uint64_t compute_end, uint64_t end);
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance*, uint64_t batch_size, uint64_t start, uint64_t compute_start, uint64_t compute_end,
    uint64_t end);

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void answer(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Input* input;
  TRITONBACKEND_Response* response;
  TRITONBACKEND_Output* output;
  const char* name;
  const int64_t* shape;
  const void* from;
  void* to;
  int type, memory = CPU;
  uint32_t dims, buffers;
  uint64_t bytes;
  int64_t id = 0;
  TRITONBACKEND_RequestInputByIndex(request, 0, &input);
  TRITONBACKEND_InputProperties(input, &name, &type, &shape, &dims, &bytes, &buffers);
  TRITONBACKEND_InputBuffer(input, 0, &from, &bytes, &memory, &id);
  TRITONBACKEND_ResponseNew(&response, request);
  TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT", type, shape, dims);
  memory = CPU;
  TRITONBACKEND_OutputBuffer(output, &to, bytes, &memory, &id);
  memcpy(to, from, bytes);
  TRITONBACKEND_ResponseSend(response, FINAL, NULL);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count) {
  const struct timespec work = {0, 20000000};
  uint64_t start = now();
  nanosleep(&work, NULL);
  for (uint32_t k = 0; k < count; k++) {
    answer(requests[k]);
#ifdef REPORTS
    TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[k], true, start, start, now(), now());
#endif
    TRITONBACKEND_RequestRelease(requests[k], RELEASE_ALL);
  }
#ifdef REPORTS
  TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, count, start, start, now(), now());
#endif
  (void)instance, (void)start;
  return NULL;
}
