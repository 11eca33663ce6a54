import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { careful, idIn } from "../approvals/kit.ts";
import { ConsoleClient, seenOn, signedIn, textOf } from "../console/kit.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { ADMIN_PASSWORD, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { IdentityProvider } from "../oauth/identity-provider.ts";
import { Wire } from "./faults/wire.ts";
import { makeStore } from "./kit.ts";

const store = await makeStore(t, { maxStaleness: 60 }, await sharedServer());
await store.addUser("bot");
const admins = '[[acl]]\ngroup = "staff:admins"\ndatabase = "*"\nrole = "Owner"\n';
await store.addAccess(careful() + admins);
const wire = await Wire.to(t, store.server.port);

const ann = { sub: "ann", groups: ["admins"] };
const provider = await IdentityProvider.start(t, ann);
const secretFile = path.join(temporaryHome(t), "secret");
writeFileSync(secretFile, provider.clientSecret, { mode: 0o600 });
const issuer = `[[issuers]]
issuer = "${provider.url}"
prefix = "staff"
opens = ["query"]
audience = "gatehouse"
groups_claim = "groups"
login = { client_id = "gatehouse", client_secret_file = "${secretFile}", label = "Example", recheck = 1 }
`;

const ports = [await freePort(), await freePort()] as const;
/** Browsers reach all replicas by one address; here it is that of the first. */
const publicUrl = `http://127.0.0.1:${ports[0]}`;

async function start(
  port: number,
  url = store.url,
): Promise<{ gateway: TestGateway; url: string }> {
  const listen = `127.0.0.1:${port}`;
  const section = `[console]\nlisten = "${listen}"\npublic_url = "${publicUrl}"\n${issuer}`;
  const gateway = await store.replica(url, store.makeHome(), section);
  return { gateway, url: `http://${listen}` };
}

const [one, two] = await Promise.all([start(ports[0]), start(ports[1], store.urlBy(wire))]);

/** The same browser at another replica. */
function sameAt(url: string, { cookies }: ConsoleClient): ConsoleClient {
  const other = new ConsoleClient(url);
  for (const [name, value] of cookies) other.cookies.set(name, value);
  return other;
}

async function isSignedIn(client: ConsoleClient): Promise<boolean> {
  const { status, headers } = await client.get("/sessions");
  if (status === 200) return true;
  if (status === 303 && headers.location?.includes("/sign-in")) return false;
  throw new Error(`the console answered ${status}`);
}

t.test("a console session is valid at every replica, and ends at every replica", async (t) => {
  const here = await signedIn(one.url);
  const there = sameAt(two.url, here);
  t.equal(await isSignedIn(there), true);
  const [row] = await store.sql("select * from gatehouse.console_sessions");
  const secrets = [...here.cookies.values()];
  for (const secret of secrets) t.notMatch(JSON.stringify(row), secret, "no cookie is stored");

  await t.test("a form of one replica works at another", async (t) => {
    const { text } = await here.get("/sessions");
    const csrf = /name="csrf" value="([^"]+)"/.exec(text)?.[1] ?? "";
    t.equal((await sameAt(two.url, here).post("/sign-out", { csrf })).status, 303);
    t.equal(await isSignedIn(here), false);
    t.equal(await isSignedIn(there), false);
  });

  // `test/console/sign-in.test.ts` has every end.
  await t.test("a session that is revoked at one replica ends at another", async (t) => {
    await store.addUser("carol");
    const client = await signedIn(two.url, "carol", "carol password");
    const clients = [client, sameAt(one.url, client)];
    for (const own of clients) t.equal(await isSignedIn(own), true);
    const admin = await one.gateway.login();
    const answer = await one.gateway.send("DELETE", "/api/users/carol/tokens", {}, admin);
    t.equal(answer.status, 200);
    for (const own of clients) t.equal(await isSignedIn(own), false);
  });
});

t.test("a sign-in through a provider begins at one replica and ends at another", async (t) => {
  await provider.open({ redirectUris: [`${one.url}/callback/staff`] });
  const here = new ConsoleClient(one.url);
  const { headers } = await here.get("/sign-in/staff?next=%2Fstate");
  const answer = await new PlainBrowser(provider.url).open(headers.location ?? "");
  const there = sameAt(two.url, here);
  const finished = await there.get(answer.url.replace(one.url, ""));
  t.match(finished, { status: 303, headers: { location: "/state" } });
  const back = sameAt(one.url, there);
  for (const client of [back, there]) t.equal((await client.get("/state")).status, 200);
  provider.users.set("ann", { ...ann, groups: [] });
  for (const client of [back, there]) {
    const isDenied = async () => (await client.get("/state")).status === 403;
    await eventually("the group is gone", isDenied);
  }
  provider.users.delete("ann");
  await eventually("the sign-in has ended", async () => !(await isSignedIn(back)));
  t.equal(await isSignedIn(there), false);
});

t.test("an outage of the store ends no session", async (t) => {
  const there = await signedIn(two.url);
  wire.cut();
  await eventually("the console says so", async () => {
    const { status, text } = await there.get("/sessions");
    return status === 503 && text.includes("does not respond");
  });
  t.equal((await there.get("/style.css")).status, 200);
  wire.restore();
  await eventually("it is there again", async () => (await there.get("/sessions")).status === 200);
  t.equal(await isSignedIn(sameAt(one.url, there)), true);
});

t.test("a change in the console takes effect everywhere and names its author", async (t) => {
  const client = await signedIn(one.url);
  const form = "/access/entry?user=bot&database=other";
  const seen = await seenOn(client, form);
  const entry = { user: "bot", database: "other", table: "", role: "ReadOnly", seen };
  const answer = await client.post("/access/entry", { ...entry, password: ADMIN_PASSWORD });
  t.equal(answer.status, 303, answer.text);
  const select = { Select: { database: "other", from: "users", columns: ["*"] } };
  const bot = await two.gateway.login("bot", "bot password");
  t.equal((await two.gateway.query(select, bot)).status, 200);
  const history = JSON.parse(await store.good(["access", "history", "--json"]));
  t.match(history.at(-1), { author: { kind: "console", name: "admin" } });
  const author = JSON.stringify({ kind: "console", name: "admin" });
  const hasAuthor = (line: object) => "author" in line && JSON.stringify(line.author) === author;
  t.match(await one.gateway.service.logged(hasAuthor), { msg: "change" });
});

t.test("an approval of one replica can be decided in the console of another", async (t) => {
  const where = { column: "id", cmp: "=", value: 1 };
  const body = JSON.stringify({ Delete: { database: "main", table: "orders", where } });
  const bot = await one.gateway.login("bot", "bot password");
  const headers = { authorization: `Bearer ${bot}`, "content-type": "application/json" };
  const id = idIn(await one.gateway.request("/query", { method: "POST", headers, body }));
  const client = await signedIn(two.url);
  t.match((await client.get("/approvals")).text, id);
  t.match((await client.get(`/approvals/${id}`)).text, "orders");
  const decision = { decision: "approve", password: ADMIN_PASSWORD };
  t.equal((await client.post(`/approvals/${id}`, decision)).status, 303);
  const approved = { ...headers, "x-gatehouse-approval": id };
  const run = () => one.gateway.request("/query", { method: "POST", headers: approved, body });
  t.equal((await run()).status, 200);
  t.match(await run(), { status: 409, body: { code: "approval_used" } });
});

t.test("effective access is the same at each replica, and in the command", async (t) => {
  const admin = await one.gateway.login();
  const here = await signedIn(one.url);
  const places = [one, two];
  const path = "/api/users/bot/access?effective=true";
  const changes: [path: string, body: object, expected: RegExp][] = [
    ["/api/groups/team", { members: ["bot"] }, /main/],
    ["/api/groups/team/access/side", { role: "ReadOnly" }, /side \(group team\)/],
    ["/api/groups/team/access/side", { role: "ReadWrite", max_rows: 5 }, /side.*"max_rows":5/],
  ];
  for (const [changed, body, expected] of changes) {
    t.equal((await one.gateway.send("PUT", changed, body, admin)).status, 200, changed);
    const answers = await Promise.all(places.map(({ gateway }) => gateway.get(path, admin)));
    const [first, second] = answers.map(({ body }) => body.access);
    t.strictSame(second, first, changed);
    t.match(JSON.stringify(first), expected);
    const command = await store.good(["access", "list", "--effective", "bot", "--json"]);
    t.strictSame(JSON.parse(command), first, changed);
    const pages = places.map(({ url }) => sameAt(url, here).get("/access/user?user=bot"));
    const [shown, other] = (await Promise.all(pages)).map(({ text }) => textOf(text));
    t.equal(other, shown, changed);
  }
  const { text } = await sameAt(two.url, here).get("/access/user?user=bot");
  t.match(textOf(text), /side .*SELECT, INSERT, UPDATE, DELETE .*5 rows .*side \(group team\)/);
});

t.test("text that PostgreSQL cannot store is no outage of the store", async (t) => {
  const query = JSON.stringify({ Delete: { database: "main", table: "users", where: null } });
  const bot = await one.gateway.login("bot", "bot password");
  const id = idIn(await one.gateway.query(query, bot));
  const admin = await signedIn(one.url);
  for (const path of ["/sessions?user=%00", "/approvals/%00", "/audit?user=a%00"]) {
    t.equal((await admin.get(path)).status, 404, path);
  }
  await admin.get(`/approvals/${id}`);
  const denial = { decision: "deny", reason: "a\0", password: ADMIN_PASSWORD };
  t.equal((await admin.post(`/approvals/${id}`, denial)).status, 400);
  t.equal((await admin.post(`/approvals/${id}`, { ...denial, reason: "a" })).status, 303);
});
