"""Calls the detector's three models with Triton's business logic scripting (BLS)."""

import triton_python_backend_utils as pb_utils


def call(model, outputs, inputs):
    """Calls a model and returns its outputs. Raises TritonModelException with the model's message."""
    response = pb_utils.InferenceRequest(model_name=model, requested_output_names=outputs, inputs=inputs).exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return [pb_utils.get_output_tensor_by_name(response, name) for name in outputs]


def renamed(tensor, name):
    """Returns the tensor with another name, without a copy."""
    return pb_utils.Tensor.from_dlpack(name, tensor.to_dlpack())


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            image = pb_utils.get_input_tensor_by_name(request, "IMAGE")
            try:
                processed, shape = call("preprocess", ["PROCESSED_IMAGE", "ORIGINAL_SHAPE"], [image])
                (rows,) = call("yolov5s", ["output0"], [renamed(processed, "images")])
                (answer,) = call("postprocess", ["DETECTIONS"], [renamed(rows, "PREDICTIONS"), shape])
                responses.append(pb_utils.InferenceResponse([answer]))
            except pb_utils.TritonModelException as error:
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))))
        return responses
