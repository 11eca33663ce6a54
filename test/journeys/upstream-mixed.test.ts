import t, { type Test } from "tap";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { asking, broken, cut, idIn, type Misbehaviour, odd } from "./misbehaving.ts";

t.test("whatever the upstream does to each, no client gets what is another one's", async (t) => {
  const ways = [...Object.values(broken), ...Object.values(cut), ...Object.values(odd)];
  const { gateway, upstream } = await mixedScene(t, ways);
  const token = await gateway.login();
  const statuses = new Map<number, number>();
  const ask = async (client: number, round: number) => {
    const id = `id-${client * 1000 + round}`;
    const operation = round % 2 === 0 ? "Select" : "Insert";
    try {
      const { status, text } = await gateway.query(asking(id, operation), token);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      if (status === 200) t.equal(text, `"${id}"`);
      else t.equal(status, 502);
    } catch {
      // A cut connection is an honest end too.
    }
  };
  await Promise.all(
    Array.from({ length: 16 }, async (_, client) => {
      for (let round = 0; round < 25; round++) await ask(client, round);
    }),
  );
  t.ok((statuses.get(200) ?? 0) > 100, "many are answered all the same");
  const times = new Map<string, number>();
  for (const request of upstream.requests) {
    if (request.includes("Insert")) times.set(idIn(request), (times.get(idIn(request)) ?? 0) + 1);
  }
  t.equal(Math.max(...times.values()), 1, "nothing that writes was sent twice");
});

/** An upstream that misbehaves in one of the ways, by turns, for each second request. */
async function mixedScene(
  t: Test,
  ways: readonly Misbehaviour[],
): Promise<{ gateway: TestGateway; upstream: RawUpstream }> {
  let count = 0;
  const upstream = await new RawUpstream((socket, request) => {
    const right = wireAnswer(JSON.stringify(idIn(request)));
    const way = count++ % 2 === 0 ? undefined : ways[(count >> 1) % ways.length];
    if (way === undefined) socket.write(right);
    else way(socket, right);
  }).listen();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { upstream: upstream.url, config: "connections = 8\n" });
  return { gateway, upstream };
}
