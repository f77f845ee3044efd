"""Preprocessing as in tutorials: a loop over the requests, and a new array at each step."""

import cv2
import numpy as np
import triton_python_backend_utils as pb_utils

SIZE = 640


def letterbox(image):
    """Scales the image [height, width, 3] to fit into [640, 640, 3] and pads it with grey."""
    height, width = image.shape[:2]
    scale = min(SIZE / height, SIZE / width)
    new_width, new_height = max(1, round(width * scale)), max(1, round(height * scale))
    image = cv2.resize(image, (new_width, new_height), interpolation=cv2.INTER_LINEAR)
    top, left = (SIZE - new_height) // 2, (SIZE - new_width) // 2
    bottom, right = SIZE - new_height - top, SIZE - new_width - left
    return cv2.copyMakeBorder(image, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(114, 114, 114))


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            data = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
            images, shapes = [], []
            for encoded in data.reshape(-1):
                image = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
                shapes.append(image.shape[:2])
                image = cv2.cvtColor(letterbox(image), cv2.COLOR_BGR2RGB)
                image = image.astype(np.float32) / 255.0
                images.append(np.transpose(image, (2, 0, 1)))
            batch = np.ascontiguousarray(np.stack(images, axis=0))
            responses.append(
                pb_utils.InferenceResponse(
                    output_tensors=[
                        pb_utils.Tensor("PROCESSED_IMAGE", batch),
                        pb_utils.Tensor("ORIGINAL_SHAPE", np.array(shapes, dtype=np.int32)),
                    ]
                )
            )
        return responses
