import t from "tap";
import { ask } from "../kit/client.ts";
import { startGateway } from "../kit/gateway.ts";
import { RawUpstream } from "../kit/raw-upstream.ts";
import { acceptSockets, handshake, openSocket } from "../kit/web-socket.ts";
import { auditOf, socketRoutes } from "./socket-routes.ts";
import { openStaffed, soon, succeed, tokenOf } from "./staff.ts";
import { servedBy } from "./supervised.ts";

/** So many that the system gives some to each of two processes, all but surely. */
const COUNT = 40;

t.test("an upstream that is mute is 504, and one that is down is 502", async (t) => {
  const mute = await new RawUpstream(() => {}).listen();
  const timeout = "response_timeout = 1\n";
  const behind = await startGateway(t, { upstream: mute.url, config: `${timeout}${socketRoutes}` });
  const refused = async (status: number, code: string) => {
    const answer = await ask(`${behind.url}/public/live`, { headers: handshake() });
    t.equal(answer.status, status);
    t.match(JSON.parse(answer.body.toString()), { status: "error", code, message: String });
  };
  await refused(504, "upstream_timeout");
  await mute.close();
  await refused(502, "upstream_unreachable");
});

t.test("sockets are served by several processes, and cut in each", async (t) => {
  const setting = await openStaffed(
    t,
    ["bob main ReadWrite"],
    servedBy(2, { config: socketRoutes }),
  );
  const { gateway } = setting;
  const accepted = acceptSockets(t, setting.upstream);
  const token = await tokenOf(gateway, "bob");
  const clients = await Promise.all(
    Array.from({ length: COUNT }, () => openSocket(`${gateway.url}/live`, token)),
  );
  for (const client of clients) await client.echo("here");
  t.equal(accepted.length, COUNT);
  await succeed(gateway.send("POST", "/logout", undefined, token));
  await soon(t, "all are cut", () => clients.every(({ isClosed }) => isClosed));
  const lines = await Promise.all(clients.map((client) => auditOf(client, gateway)));
  t.equal(new Set(lines.map(({ worker }) => worker)).size, 2, "both had some");
});
