import t from "tap";
import { callOf, checkEach, large, limits, messages, openMeasured } from "./large-bodies.ts";

t.setTimeout(110_000);

const calls = large.map(({ tool, name, args }) => ({ name, body: callOf(tool, args()) }));

t.test("no call of a tool holds the event loop", async (t) => {
  const { gateway, owner } = await openMeasured(t, () => `[mcp]\n${limits}`);
  await checkEach(t, gateway, calls, owner);
});

t.test("nor does one of a user without a grant, or what is no call", async (t) => {
  const { gateway, nobody } = await openMeasured(t, () => `[mcp]\n${limits}`);
  await checkEach(t, gateway, [...calls.slice(0, 4), ...messages], nobody);
});
