import t from "tap";
import { openGatewaySetup, select } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { Fleet, SteadyLoad } from "./fleet.ts";
import { findProgram } from "./programs.ts";

const { gateway: one, upstream } = await openGatewaySetup(t);
const other = await startGateway(t, { home: one.home, upstream: upstream.url });
const admin = await one.login();

/** The error code of a query; undefined if it succeeds. */
async function codeOf(gateway: TestGateway, token: string): Promise<unknown> {
  return (await gateway.query(select, token)).body.code;
}

t.test("gateways on one service directory accept each other's tokens", async (t) => {
  t.equal(await codeOf(other, admin), undefined);
  t.equal(await codeOf(one, await other.login()), undefined);
});

t.test("a change made by one takes effect at the other", async (t) => {
  const rita = await one.addUser("rita", "ReadOnly");
  const isKnown = async () => (await codeOf(other, rita)) === undefined;
  await eventually("the user is known", isKnown);
  await other.send("DELETE", "/api/access/rita/main", undefined, admin);
  const isDenied = async () => (await codeOf(one, rita)) === "no_grant";
  await eventually("the grant is gone", isDenied);
  const versions = await Promise.all([one, other].map((each) => each.request("/readyz")));
  t.equal(versions[0]?.body.access_version, versions[1]?.body.access_version);
});

t.test("a token revoked by one is refused by the other", async (t) => {
  const token = await one.login();
  t.equal((await one.send("POST", "/logout", undefined, token)).status, 200);
  await eventually(
    "the token is refused",
    async () => (await codeOf(other, token)) === "token_revoked",
  );
});

/** Restarts of each replica; to set it: `ROUNDS=20 npx tap run test/deploy/replicas.test.ts`. */
const ROUNDS = Number(process.env.ROUNDS ?? 1);

const haproxy = findProgram("haproxy");

if (haproxy !== undefined) {
  t.test("restarting replicas in turn fails no request", nightly, async (t) => {
    const fleet = await Fleet.start(t, haproxy);
    const load = new SteadyLoad(fleet.client);
    for (let round = 0; round < ROUNDS; round++) {
      for (const index of fleet.replicas.keys()) {
        await load.waitForMore();
        await fleet.restart(index);
      }
    }
    await load.waitForMore();
    await load.stop();
    t.strictSame(load.failed, []);
    t.comment(`${load.count} requests`);
  });
}
