"""What findings propose exists."""

from __future__ import annotations

import re

import pytest

from support.mutations import edit, remove, write
from unit.repository.gen import DETECT, MODEL_PY, NET, PRE, findings, good

PINNED = write("detect/config.pbtxt", DETECT.replace('"net"\n      model_version: -1', '"net"\n      model_version: 1'))


def test_only_models_are_proposed_as_the_entrypoint(tmp_path):
    root = good(tmp_path, remove("detect"), write(".git/HEAD", ""), write("docs/index.md", ""))
    [unknown] = [finding for finding in findings(root) if finding.code == "TR502"]
    assert unknown.message.endswith("set spec.entrypoint to one of net, pre")


def test_a_step_without_a_version_gets_one_proposed(tmp_path):
    pinned = write("detect/config.pbtxt", DETECT.replace("model_version: -1", "model_version: 3"))
    remedies = {finding.message: finding.remedy for finding in findings(good(tmp_path, remove("pre/1"), pinned))}
    assert remedies["step 0 requests version 3 of 'pre', which isn't served"] == "add a version directory such as pre/1"
    assert remedies["step 1 requests version 3 of 'net', which isn't served"].endswith("to one of 1")


def test_a_hidden_version_is_served_by_the_version_policy(tmp_path):
    hides = write("net/config.pbtxt", NET + "version_policy { specific { versions: 7 } }\n")
    [remedy] = [finding.remedy for finding in findings(good(tmp_path, hides, PINNED)) if finding.code == "TR413"]
    assert remedy == "serve the version by version_policy in net/config.pbtxt"


def test_a_missing_file_is_named_as_in_config_pbtxt(tmp_path):
    text = 'backend: "tensorrtllm"\nparameters { key: "engine_dir" value { string_value: "/models/llm/1/e" } }\n'
    root = good(tmp_path, write("llm/config.pbtxt", text), write("llm/1/x", ""))
    [message] = [finding.message for finding in findings(root) if finding.code == "TR209"]
    assert message == "engine_dir names '/models/llm/1/e', but llm/1/e doesn't exist"


@pytest.mark.parametrize(
    ("server", "image"),
    [((2, 51), "tritonserver:24.10-vllm-python-py3"), ((2, 59), "tritonserver:25.06-vllm-python-py3"),
     ((2, 60), "tritonserver:25.08-vllm-python-py3"), (None, "tritonserver:RELEASE-vllm-python-py3")],
)  # fmt: skip
def test_the_image_for_another_backend_has_the_users_release(tmp_path, server, image):
    root = good(tmp_path, write("llm/config.pbtxt", 'backend: "vllm"\n'), write("llm/1/model.json", '{"model": "a"}'))
    [remedy] = [f.remedy for f in findings(root, lacks=("vllm",), server=server) if f.code == "TR132"]
    assert remedy == f"set spec.server.image to nvcr.io/nvidia/{image}"


def test_a_model_that_sends_its_responses_is_told_to_return_none(tmp_path):
    source = MODEL_PY.replace("return [", "requests[0].get_response_sender()\n        return [")
    decoupled = write("pre/config.pbtxt", PRE + "model_transaction_policy { decoupled: true }\n")
    for number, (text, remedy) in enumerate(((source, "return None, or "), (MODEL_PY, "send responses with "))):
        root = good(tmp_path / str(number), write("pre/1/model.py", text), decoupled)
        [told] = [finding.remedy for finding in findings(root) if finding.code == "TR309"]
        assert told.startswith(remedy)


def test_no_remedy_proposes_one_of_none(tmp_path):
    for number, change in enumerate((
        write("pre/config.pbtxt", 'backend: "python"\n'),
        edit("pre/1/model.py", "[pb_utils", '[pb_utils.get_input_tensor_by_name(_, "X") and pb_utils'),
        write("net/config.pbtxt", 'backend: "onnxruntime"\n'),
    )):  # fmt: skip
        for finding in findings(good(tmp_path / str(number), change)):
            assert not re.search(r"\bnone\b(?! )|: none", finding.remedy), finding
