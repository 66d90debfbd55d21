"""The API does what its description says, whatever is sent: schemathesis over all of it."""

import os

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

EXAMPLES = int(os.environ.get("TRACEKIT_API_EXAMPLES", "3"))

schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")

# A schema can't say which GPUs, uploads and steps there are: what fits it may still be refused.
NOT_PROMISED = [positive_data_acceptance]


@pytest.fixture
def description(start):
    client = start(max_per_minute=10**6, max_queued_per_owner=10**6, max_queued=10**6)
    return schemathesis.openapi.from_url(f"{client.base_url}/api/v1/openapi.json")


@pytest.mark.filterwarnings("default")
def test_every_operation_keeps_its_word(description):
    tried = []
    for operation in (result.ok() for result in description.get_all_operations()):

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def keeps_its_word(case):
            case.call_and_validate(excluded_checks=NOT_PROMISED)

        keeps_its_word()
        tried.append(operation.label)
    assert "POST /api/v1/jobs" in tried
    assert len(tried) == len(set(tried)) >= 14
