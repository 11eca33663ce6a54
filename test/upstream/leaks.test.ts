import t from "tap";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { openSockets } from "../kit/process-info.ts";
import { insert, queryHeaders, select } from "../kit/queries.ts";
import { RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";

t.test("two thousand failures leave nothing behind", async (t) => {
  let isFailing = true;
  const upstream = await new RawUpstream((socket) => {
    if (isFailing) socket.destroy();
    else socket.write(wireAnswer('{"status":"success"}'));
  }).listen();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { upstream: upstream.url });
  const token = await gateway.login();
  const pid = gateway.service.child.pid ?? 0;
  const url = `${gateway.url}/query`;
  const headers = queryHeaders(token);
  const before = openSockets(pid);
  for (let round = 0; round < 100; round++) {
    const failing = Array.from({ length: 20 }, (_, at) =>
      ask(url, { method: "POST", headers, body: at % 2 === 0 ? select : insert }),
    );
    for (const { status } of await Promise.all(failing)) if (status !== 502) t.equal(status, 502);
  }
  await eventually("the sockets are closed", () => openSockets(pid) <= before + 1);
  isFailing = false;
  const all = await Promise.all(Array.from({ length: 64 }, () => gateway.query(select, token)));
  t.ok(
    all.every(({ status }) => status === 200),
    "every connection works again",
  );
});
