"""An agent made with the official Python library: a witness that we speak its protocol."""

import asyncio
import os

import acp
from acp import schema


class Agent:
    def __init__(self):
        self.client = None

    def on_connect(self, conn):
        self.client = conn

    async def initialize(self, protocol_version, client_capabilities=None, client_info=None, **_):
        assert client_capabilities.terminal is False
        assert client_info.name == "routines"
        able = schema.AgentCapabilities(load_session=True)
        return schema.InitializeResponse(protocol_version=protocol_version, agent_capabilities=able)

    async def new_session(self, cwd, additional_directories=None, mcp_servers=None, **_):
        assert os.path.isabs(cwd)
        return schema.NewSessionResponse(session_id=f"lib-{len(mcp_servers)}")

    async def load_session(self, cwd, session_id, mcp_servers=None, **_):
        await self._say(session_id, "PLAYED BACK")
        return schema.LoadSessionResponse()

    async def prompt(self, session_id, prompt, **_):
        if "leave" in prompt[0].text:
            answer = await self.client.request_permission(
                session_id=session_id,
                tool_call=schema.ToolCallUpdate(tool_call_id="t", title="rm", kind="execute"),
                options=[
                    schema.PermissionOption(option_id="y", name="Yes", kind="allow_once"),
                    schema.PermissionOption(option_id="n", name="No", kind="reject_once"),
                ],
            )
            await self._say(session_id, answer.outcome.option_id)
        await self._say(session_id, f"{session_id} heard {prompt[0].text}")
        usage = schema.Usage(total_tokens=7, input_tokens=3, output_tokens=4)
        return schema.PromptResponse(stop_reason="end_turn", usage=usage)

    async def cancel(self, session_id, **_):
        pass

    async def _say(self, session_id, text):
        await self.client.session_update(session_id, acp.update_agent_message_text(text))


asyncio.run(acp.run_agent(Agent()))
