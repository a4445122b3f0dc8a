"""Signals to the parent: backpressure for delivery, none for the audit tap."""

from __future__ import annotations

import asyncio

import pytest

from agentkit.core.runtime.signals import SignalChannel
from agentkit.errors import ConfigurationError


async def test_delivery_waits_for_room_and_keeps_order():
    """A full inbox makes the sender wait until the parent takes one (fault 90)."""
    channel = SignalChannel(2)
    sending = asyncio.create_task(send(channel, 5))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not sending.done()
    kinds = [(await channel.receive()).kind for _ in range(5)]
    assert kinds == ["0", "1", "2", "3", "4"]
    assert await sending == [True] * 5


async def send(channel, count):
    """Emit that many signals."""
    return [await channel.emit(str(number)) for number in range(count)]


async def test_the_tap_drops_its_oldest_and_counts():
    """Nobody reads the tap: emitting goes on, the oldest are dropped and counted."""
    channel = SignalChannel(100, tap_size=3)
    await send(channel, 10)
    assert [signal.kind for signal in channel.audit()] == ["7", "8", "9"]
    assert channel.dropped == 7


async def test_children_share_the_inbox_and_have_taps_of_their_own(clock):
    """Signals of several senders arrive in one inbox, each under its name, with time and cause."""
    parent = SignalChannel(10, clock=clock)
    left, right = parent.child("left"), parent.child("right")
    await left.emit("progress", {"done": [1, 2]})
    first = await parent.receive()
    await right.emit("done", "yes", causation_id=first.id)
    second = await parent.receive()
    assert (first.sender, second.sender, second.causation_id) == ("left", "right", first.id)
    assert first.at == clock.wall()
    assert [len(channel.audit()) for channel in (parent, left, right)] == [0, 1, 1]


async def test_payloads_are_frozen_copies():
    """Changing the sender's data changes nothing for the receiver, who cannot change it either (fault 91)."""
    channel = SignalChannel()
    data = {"options": ["a", "b"], "text": "abc"}
    await channel.emit("blocked", data)
    data["options"].append("c")
    payload = (await channel.receive()).payload
    assert payload["options"] == ("a", "b") and payload["text"] == "abc"
    with pytest.raises(TypeError):
        payload["text"] = "other"
    with pytest.raises(ConfigurationError, match="plain data"):
        await channel.emit("bad", object())


async def test_closing_wakes_everybody():
    """A waiting sender gets False, a waiting receiver the rest and then None."""
    channel = SignalChannel(1)
    sending = asyncio.create_task(send(channel, 2))
    await asyncio.sleep(0)
    channel.close()
    channel.close()
    assert await sending == [True, False]
    assert (await channel.receive()).kind == "0"
    assert await channel.receive() is None
    waiting = asyncio.create_task((other := SignalChannel()).receive())
    await asyncio.sleep(0)
    other.close()
    assert await waiting is None


def test_sizes_are_checked():
    """A channel without room would hang: refused by name."""
    with pytest.raises(ConfigurationError, match="size"):
        SignalChannel(0)
    with pytest.raises(ConfigurationError, match="tap_size"):
        SignalChannel(tap_size=-1)
    assert SignalChannel(sender="me").sender == "me"
