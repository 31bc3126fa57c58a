"""Drives a server with the client that openapi-python-client generates from the served document.

Usage: scenario.py URL API_KEY
"""

import sys

from dormouse_client import AuthenticatedClient
from dormouse_client.api.instances import (
    get_instance,
    get_instance_result,
    list_instance_history,
    list_instances,
    signal_instance,
    start_instance,
)
from dormouse_client.api.interactions import complete_interaction, list_interactions
from dormouse_client.models import CompleteInteraction, InteractionStatus, NewInstance, NewSignal, Problem, Status

url, api_key = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=api_key)
key = "order:python-client"
new = NewInstance(
    machine="order", step="Placed", key=key, state={"number": 7, "line_cents": [100, 200], "pay_within_s": 3600}
)

started = start_instance.sync(client=client, body=new)
assert not isinstance(started, Problem) and started.created, started

taken = start_instance.sync(client=client, body=new)
assert isinstance(taken, Problem) and taken.type_ == "urn:dormouse:problem:key-taken", taken
assert taken.holder == started.id, taken

misspelt = signal_instance.sync(instance=str(started.id), client=client, body=NewSignal(name="paymant"))
assert isinstance(misspelt, Problem) and misspelt.nearest == "payment", misspelt
assert "approval" in misspelt.accepts, misspelt

payment = NewSignal(name="payment", payload={"cents": 300}, dedup_key="payment-1")
for expected in ["accepted", "duplicate"]:
    delivered = signal_instance.sync(instance=f"key:{key}", client=client, body=payment)
    assert delivered.delivered == expected, delivered

result = get_instance_result.sync(instance=f"key:{key}", client=client, wait="30s")
assert result.status == Status.DONE and result.output["cents"] == 300, result
assert get_instance.sync(instance=str(started.id), client=client).output == result.output

history = list_instance_history.sync(instance=str(started.id), client=client)
kinds = [event.kind for event in history.items]
assert kinds[0] == "created" and kinds[-1] == "done", kinds

first = list_instances.sync(client=client, limit=1)
second = list_instances.sync(client=client, limit=1, cursor=first.next_)
assert first.items[0].id > second.items[0].id, (first, second)

asked = list_interactions.sync(client=client, status=InteractionStatus.PENDING, machine="refund").items[0]
answer = CompleteInteraction(output={"approved": True})
completed = complete_interaction.sync(interaction=str(asked.id), client=client, body=answer)
assert completed.woke, completed
