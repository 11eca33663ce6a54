import { AsyncLocalStorage } from "node:async_hooks";
import { setImmediate as turn } from "node:timers/promises";
import t from "tap";
import { Batch } from "../../src/gateway/server.ts";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { startGateway } from "../kit/gateway.ts";

t.test(
  "steps are taken one after the other, and what else there is to do between batches",
  async (t) => {
    const batch = new Batch();
    const storage = new AsyncLocalStorage<number>();
    const taken: (number | undefined)[] = [];
    for (let at = 0; at < 130; at++) {
      storage.run(at, () => batch.add(() => taken.push(storage.getStore())));
    }
    t.equal(taken.length, 0);
    const seen: number[] = [];
    while (taken.length < 130) {
      await turn();
      seen.push(taken.length);
    }
    t.strictSame(seen, [64, 128, 130]);
    t.strictSame(
      taken,
      Array.from({ length: 130 }, (_, at) => at),
      "in order, each in its own context",
    );
  },
);

t.test("of many requests at one time, each is answered by its own token", async (t) => {
  const names = Array.from({ length: 20 }, (_, at) => `user${at}`);
  const home = await staffedHome(
    t,
    names.map((name) => `${name} main ReadOnly`),
  );
  const gateway = await startGateway(t, { home, upstream: "http://127.0.0.1:1" });
  const tokens = await Promise.all(names.map((name) => tokenOf(gateway, name)));
  const answers = tokens.flatMap((token, at) => [
    { token, said: { user: { username: names[at] } } },
    { token: `${token.slice(0, -9)}${token.slice(-8)}`, said: { code: "token_invalid" } },
  ]);
  const asked = answers.map(async ({ token, said }) => {
    const headers = { authorization: `Bearer ${token}` };
    const response = await fetch(`${gateway.url}/api/me`, { headers });
    t.match(await response.json(), said);
  });
  await Promise.all(asked);
});
