import t from "tap";
import { tables } from "../kit/tables.ts";
import { callOf, checkEach, large, limits, messages, openMeasured } from "./large-bodies.ts";

t.setTimeout(110_000);

t.test("no message to a server behind the gateway holds the event loop", async (t) => {
  const names = new Set(large.map(({ tool }) => tool));
  const rules = Array.from(names, (name) => ({
    name,
    permission: "SELECT",
    database_argument: "database",
  }));
  const policy = tables("mcp.tools", rules);
  const config = (url: string) => `[mcp]\n${limits}upstream = "${url}/mcp"\n${policy}`;
  const { gateway, owner } = await openMeasured(t, config);
  const calls = large.map(({ tool, name, args }) => ({ name, body: callOf(tool, args()) }));
  await checkEach(t, gateway, [...calls, ...messages], owner);
});
