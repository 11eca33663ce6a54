import { readFileSync } from "node:fs";
import t from "tap";
import { openSetting, select } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";

const { gateway: one, upstream } = await openSetting(t);
const other = await startGateway(t, { home: one.home, upstream: upstream.url });
const admin = await one.login();

/** The code by which a gateway refuses a query; undefined if it does not. */
async function codeOf(gateway: TestGateway, token: string): Promise<unknown> {
  return (await gateway.query(select, token)).body.code;
}

t.test("gateways on one service directory take each other's tokens", async (t) => {
  t.equal(await codeOf(other, admin), undefined);
  t.equal(await codeOf(one, await other.login()), undefined);
});

t.test("what is changed by one is soon in force at the other", async (t) => {
  const rita = await one.addUser("rita", "ReadOnly");
  const isKnown = async () => (await codeOf(other, rita)) === undefined;
  await eventually("the user is known", isKnown);
  await other.send("DELETE", "/api/access/rita/main", undefined, admin);
  const isDenied = async () => (await codeOf(one, rita)) === "no_grant";
  await eventually("the grant is gone", isDenied);
  const versions = await Promise.all([one, other].map((each) => each.request("/readyz")));
  t.equal(versions[0]?.body.access_version, versions[1]?.body.access_version);
});

t.test("a token that one has revoked is soon refused by the other", async (t) => {
  const token = await one.login();
  t.equal((await one.send("POST", "/logout", undefined, token)).status, 200);
  await eventually("it is", async () => (await codeOf(other, token)) === "token_revoked");
});

t.test("changes by both at one time are all kept", async (t) => {
  const names = Array.from({ length: 8 }, (_, at) => `user${at}`);
  await Promise.all(
    names.map((username, at) => {
      const user = { username, password: "a long enough one", role: "ReadOnly" };
      return (at % 2 === 0 ? one : other).send("POST", "/api/users", user, admin);
    }),
  );
  const text = readFileSync(one.accessFile, "utf8");
  for (const name of names) t.match(text, `username = "${name}"`);
});
