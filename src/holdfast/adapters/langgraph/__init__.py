"""LangGraph's checkpoints in a Holdfast store: `builder.compile(checkpointer=HoldfastSaver.from_url("sqlite:///…"))`."""

from holdfast.errors import Extra

with Extra("langgraph"):
    from holdfast.adapters.langgraph.saver import HoldfastSaver

__all__ = ["HoldfastSaver"]
