import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { grant } from "../access/kit.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { refresh } from "../oauth/flow.ts";
import { IdentityProvider } from "../oauth/identity-provider.ts";
import { postForm } from "../oauth/kit.ts";
import { goodTokens, logoutClaims, signInAs } from "../oauth/logout.ts";
import { Wire } from "./faults/wire.ts";
import { untilDeciding } from "./kit.ts";
import { openReplicated } from "./round-robin.ts";

const user = { sub: "u-1", preferred_username: "ann" };
const provider = await IdentityProvider.start(t, user);
const secretFile = path.join(temporaryHome(t), "secret");
writeFileSync(secretFile, provider.clientSecret, { mode: 0o600 });
const wires: Wire[] = [];
const server = await sharedServer();
const { store, replicas, balancer } = await openReplicated(
  t,
  {
    mcp: "enabled = true",
    maxStaleness: 2,
    server,
    more: `
[[issuers]]
issuer = "${provider.url}"
prefix = "staff"
opens = ["mcp", "query"]
audience = "api"
username_claim = "preferred_username"
default_scopes = ["mcp:tools"]
login = { client_id = "gatehouse", client_secret_file = "${secretFile}", label = "Sign in" }
`,
  },
  async (store) => {
    wires.push(await Wire.to(t, store.server.port));
    return [undefined, undefined, ...wires.map((wire) => store.urlBy(wire))];
  },
);
await store.addAccess(grant("staff:ann", "main", "ReadOnly"));
const [one, two, far] = replicas;
const [wire] = wires;
if (!one || !two || !far || !wire) throw new Error("three replicas");
const pathOf = "/oauth/backchannel-logout/staff";
await provider.open({
  redirectUris: [`${balancer.url}/oauth/callback/staff`],
  backchannelLogoutUri: `${balancer.url}${pathOf}`,
});

const good = ["good", "good", "good"];
const revoked = ["token_revoked", "token_revoked", "token_revoked"];
const signIn = () => signInAs(balancer, provider, user.sub);
const post = ({ url }: Pick<TestGateway, "url">, token: string) =>
  postForm(url + pathOf, { logout_token: token });

t.test("a logout at one replica is in force at all when it is answered", async (t) => {
  for (const isWhole of [true, false]) {
    for (const at of replicas) {
      const session = await signIn();
      for (const replica of replicas) t.strictSame(await goodTokens(replica, session), good);
      const what = isWhole ? { sub: user.sub } : { sid: session.sid };
      const token = await provider.sign({ ...logoutClaims(), ...what });
      t.equal((await post(at, token)).status, 200);
      const found = await Promise.all(replicas.map((one) => goodTokens(one, session)));
      t.strictSame(found, [revoked, revoked, revoked]);
      const { clientId, refreshToken } = session;
      t.equal((await refresh(balancer, clientId, refreshToken)).body.error, "invalid_grant");
    }
  }
});

t.test("a logout token counts once, whichever replicas get it", async (t) => {
  const [ended, other] = [await signIn(), await signIn()];
  const token = await provider.sign({ ...logoutClaims(), sub: user.sub, sid: ended.sid });
  const answers = await Promise.all(replicas.map((replica) => post(replica, token)));
  t.strictSame(answers.map(({ status }) => status).sort(), [200, 400, 400]);
  t.equal((await post(balancer, token)).status, 400);
  t.strictSame(await goodTokens(two, ended), revoked);
  t.strictSame(await goodTokens(two, other), good);
});

t.test("a logout is not answered while a replica may still accept the tokens", async (t) => {
  for (const [how, stop, start] of [
    ["cut off from the store", () => wire.cut(), () => wire.restore()],
    ["paused", () => far.service.child.kill("SIGSTOP"), () => far.service.child.kill("SIGCONT")],
  ] as const) {
    const session = await signIn();
    t.strictSame(await goodTokens(far, session), good);
    const token = await provider.sign({ ...logoutClaims(), sid: session.sid });
    stop();
    const { status } = await post(one, token);
    t.equal(status, 200, how);
    const asked = goodTokens(far, session);
    if (how === "paused") start();
    for (const code of await asked) t.not(code, "good", how);
    t.strictSame(await goodTokens(two, session), revoked);
    start();
    await untilDeciding(far);
    t.strictSame(await goodTokens(far, session), revoked);
  }
});

t.test("after a failure the provider can send the token again", async (t) => {
  const session = await signIn();
  const token = await provider.sign({ ...logoutClaims(), sid: session.sid });
  wire.cut();
  const failed = await post(far, token);
  t.match(failed, { status: 503 });
  t.ok(failed.headers.get("retry-after"));
  t.strictSame(await goodTokens(one, session), good);
  wire.restore();
  await untilDeciding(far);
  await eventually("it is answered", async () => (await post(far, token)).status === 200);
  for (const replica of replicas) t.strictSame(await goodTokens(replica, session), revoked);
});
