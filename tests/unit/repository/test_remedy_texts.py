"""What findings propose exists."""

from __future__ import annotations

import re

from support.mutations import edit, remove, write
from unit.repository.gen import DETECT, findings, good


def test_only_models_are_proposed_as_the_entrypoint(tmp_path):
    root = good(tmp_path, remove("detect"), write(".git/HEAD", ""), write("docs/index.md", ""))
    [unknown] = [finding for finding in findings(root) if finding.code == "TR502"]
    assert unknown.message.endswith("set spec.entrypoint to one of net, pre")


def test_a_step_without_a_version_gets_one_proposed(tmp_path):
    pinned = write("detect/config.pbtxt", DETECT.replace("model_version: -1", "model_version: 3"))
    remedies = {finding.message: finding.remedy for finding in findings(good(tmp_path, remove("pre/1"), pinned))}
    assert remedies["step 0 requests version 3 of 'pre', which isn't served"] == "add a version directory such as pre/1"
    assert remedies["step 1 requests version 3 of 'net', which isn't served"].endswith("to one of 1")


def test_no_remedy_proposes_one_of_none(tmp_path):
    for number, change in enumerate((
        write("pre/config.pbtxt", 'backend: "python"\n'),
        edit("pre/1/model.py", "[pb_utils", '[pb_utils.get_input_tensor_by_name(_, "X") and pb_utils'),
        write("net/config.pbtxt", 'backend: "onnxruntime"\n'),
    )):  # fmt: skip
        for finding in findings(good(tmp_path / str(number), change)):
            assert not re.search(r"\bnone\b(?! )|: none", finding.remedy), finding
