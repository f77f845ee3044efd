"""Settings from environment variables. An error names the variable."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from triton_operator.cli.operator import main
from triton_operator.runtime.settings import Settings

MINIMAL = {"TOOLS_IMAGE": "operator:1"}


def test_has_defaults() -> None:
    settings = Settings.from_environment(MINIMAL)
    assert (settings.namespace, settings.namespaces, settings.workers, settings.port) == (
        "triton-operator",
        (),
        8,
        8080,
    )
    assert (settings.resync_seconds, settings.collect_seconds) == (600, 300)
    assert (settings.prometheus_namespaces, settings.sample_limit) == (("monitoring",), 10_000)


def test_reads_every_variable() -> None:
    env = {
        "POD_NAMESPACE": "ops", "POD_NAME": "p", "WATCH_NAMESPACES": " a, b,,", "WORKERS": "2", "PORT": "9",
        "RESYNC_SECONDS": "3", "COLLECT_SECONDS": "4", "LOG_FORMAT": "plain", "LOG_LEVEL": "DEBUG",
        "PROMETHEUS_NAMESPACES": "observability, monitoring", "SAMPLE_LIMIT": "20000",
        "RUNBOOKS_URL": "https://wiki.example.com/triton", "PROMETHEUS_URL": "https://prometheus/a/b",
        "PROMETHEUS_CREDENTIALS": "/etc/prometheus", "KEDA_AUTHENTICATION": "bearer/prometheus",
    }  # fmt: skip
    settings = Settings.from_environment(MINIMAL | env)
    assert (settings.namespace, settings.namespaces, settings.workers, settings.port) == ("ops", ("a", "b"), 2, 9)
    assert (settings.resync_seconds, settings.collect_seconds) == (3, 4)
    assert (settings.log_format, settings.log_level) == ("plain", "DEBUG")
    assert settings.identity.startswith("p_")
    assert (settings.prometheus_namespaces, settings.sample_limit) == (("observability", "monitoring"), 20000)
    assert (settings.prometheus_url, settings.prometheus_credentials) == ("https://prometheus/a/b", "/etc/prometheus")
    assert settings.engines == {"KEDA_AUTHENTICATION": "bearer/prometheus"}
    assert settings.runbooks == "https://wiki.example.com/triton"
    assert Settings.from_environment(MINIMAL | {"PROMETHEUS_NAMESPACES": ""}).prometheus_namespaces == ()


def test_an_error_shows_no_password() -> None:
    for url in (
        "https://user:p@ss@prometheus", "https:/user:p@ss@prometheus", "user:p@ss@prometheus",
        "https://user:/pass@prometheus", "https://prometheus?token=pass", "https://prometheus#pass",
    ):  # fmt: skip
        with pytest.raises(ValueError, match="PROMETHEUS_URL") as error:
            Settings.from_environment(MINIMAL | {"PROMETHEUS_URL": url})
        assert "ss" not in str(error.value).replace("password", "")


def test_restarted_pod_has_a_new_lease_identity() -> None:
    assert Settings.from_environment(MINIMAL).identity != Settings.from_environment(MINIMAL).identity


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"TOOLS_IMAGE": ""}, "TOOLS_IMAGE must name"),
        ({"WORKERS": "0"}, "WORKERS must be a whole number above 0, not '0'"),
        ({"PORT": "http"}, "PORT must be a whole number"),
        ({"RESYNC_SECONDS": "-1"}, "RESYNC_SECONDS must be"),
        ({"RESYNC_SECONDS": "1.5"}, "RESYNC_SECONDS must be"),
        ({"SAMPLE_LIMIT": "99"}, "SAMPLE_LIMIT must be a whole number above 99"),
        ({"PROMETHEUS_URL": "prometheus:9090"}, "PROMETHEUS_URL must be an http or https URL"),
        ({"PROMETHEUS_URL": "https://user:p@ss@prometheus"}, "PROMETHEUS_URL contains @, . or #, and so"),
        ({"PROMETHEUS_URL": "https:/user:p@ss@prometheus"}, "PROMETHEUS_URL must be an http or https URL"),
        ({"KEDA_AUTHENTICATION": "prometheus"}, "KEDA_AUTHENTICATION must be MODE/NAME"),
        ({"LOG_FORMAT": "xml"}, "LOG_FORMAT must be one of json, plain, not 'xml'"),
        ({"LOG_LEVEL": "debug"}, "LOG_LEVEL must be one of"),
    ],
)
def test_error_names_the_variable(env: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words.split("'")[0]):
        Settings.from_environment(MINIMAL | env)


def test_command_reports_invalid_settings_without_a_traceback() -> None:
    result = CliRunner().invoke(main, ["run"], env={"TOOLS_IMAGE": ""})
    assert result.exit_code == 2
    assert "TOOLS_IMAGE must name the operator's own image" in result.output
    assert "Traceback" not in result.output
