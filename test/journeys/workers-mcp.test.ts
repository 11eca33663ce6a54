import type { IncomingMessage } from "node:http";
import t from "tap";
import { ask, open as openAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { FixtureServer } from "../mcp/fixture-server.ts";
import { handshakeCall, initialize, statelessCall } from "../mcp/messages.ts";
import { obtainTokens, refresh } from "../oauth/flow.ts";
import { postForm, register } from "../oauth/kit.ts";
import { refusalOf, send } from "./mcp.ts";
import { passwordOf, staffedHome, tokenOf } from "./staff.ts";
import { servedBy, workerOf } from "./supervised.ts";

const COUNT = 3;
const grants = ["root * Owner", "alice main ReadWrite", "bob main ReadOnly"];
const fixture = new FixtureServer();
const url = await fixture.listen();
t.teardown(() => fixture.close());
const gateway = await startGateway(t, {
  home: await staffedHome(t, grants),
  upstream: "http://127.0.0.1:9",
  ...servedBy(COUNT, { config: `[mcp]\nupstream = "${url}"\nregistrations_per_hour = 20` }),
});

const revision = { "mcp-protocol-version": "2025-11-25" };
/** Requests on connections of their own after which each worker has had one, all but surely. */
const MANY = 24;

/** A request to `/mcp` on a connection of its own. */
function knock(token: string, { headers, ...call }: ReturnType<typeof handshakeCall>) {
  const authorization = `Bearer ${token}`;
  const own = { ...headers, authorization, connection: "close" };
  return ask(`${gateway.url}/mcp`, { ...call, headers: own });
}

t.test(
  "a session of the server behind is its user's alone, whichever worker is asked",
  async (t) => {
    const alice = await tokenOf(gateway, "alice");
    const bob = await tokenOf(gateway, "bob");
    const begun = await knock(alice, initialize);
    const session = { ...revision, "mcp-session-id": String(begun.headers["mcp-session-id"]) };
    const list = handshakeCall("tools/list", {}, session);
    const workers = new Set<number>();
    for (let count = 0; count < MANY || workers.size < COUNT; count++) {
      const { status, headers } = await knock(alice, list);
      t.equal(status, 200);
      workers.add(await workerOf(gateway, String(headers["x-request-id"])));
      t.equal((await knock(bob, list)).status, 404);
    }
    t.equal((await knock(alice, { ...list, method: "DELETE" })).status, 200);
    for (let count = 0; count < COUNT; count++) t.equal((await knock(alice, list)).status, 404);
  },
);

t.test("streams of a user are counted over all workers", async (t) => {
  const bob = await tokenOf(gateway, "bob");
  const { headers, ...call } = statelessCall("subscriptions/listen", {
    notifications: { toolsListChanged: true },
  });
  const own = { ...headers, authorization: `Bearer ${bob}` };
  const listen = () => openAnswer(`${gateway.url}/mcp`, { ...call, headers: own });
  const streams: IncomingMessage[] = [];
  t.teardown(() => {
    for (const stream of streams) stream.destroy();
  });
  while (streams.length < 100) streams.push(...(await Promise.all([listen(), listen()])));
  t.ok(streams.every(({ statusCode }) => statusCode === 200));
  t.equal((await listen()).statusCode, 429);
  for (const stream of streams.splice(0, 2)) stream.destroy();
  await eventually("there is room again", async () => {
    const again = await listen();
    again.destroy();
    return again.statusCode === 200;
  });
});

t.test("a login in the browser goes on with any worker", async (t) => {
  const tokens = await obtainTokens(gateway, { password: passwordOf("alice") });
  const list = statelessCall("tools/list");
  const again = await refresh(gateway, tokens.clientId, tokens.refreshToken);
  t.equal(again.status, 200);
  const fields = { token: String(again.body.refresh_token), client_id: tokens.clientId };
  for (let count = 0; count < MANY / 2; count++) {
    t.equal((await knock(tokens.accessToken, list)).status, 200);
  }
  t.equal((await postForm(`${gateway.url}/oauth/revoke`, fields)).status, 200);
  for (let count = 0; count < MANY / 2; count++) {
    const answer = await knock(tokens.accessToken, list);
    t.equal(refusalOf(await send(gateway, list, tokens.accessToken)), "token_revoked");
    t.equal(answer.status, 401);
  }
});

t.test("registrations from one address are counted over all workers", async (t) => {
  const statuses: number[] = [];
  // The app above was the first of twenty.
  for (let count = 0; count < 22; count++) statuses.push((await register(gateway)).status);
  t.strictSame(statuses, [...Array(19).fill(201), 429, 429, 429]);
});
