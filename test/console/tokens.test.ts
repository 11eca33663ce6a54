import { mkdirSync, readFileSync, renameSync, rmdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { passwordOf, tokenOf } from "../journeys/staff.ts";
import { runWarm } from "../kit/warm-command.ts";
import { auditFile, signedIn, staffedConsole, textOf } from "./kit.ts";

const grants = ["root * Owner", "alice main ReadWrite", "bob main ReadWrite", "dora main DbAdmin"];
const { gateway, url } = await staffedConsole(t, grants, auditFile);

async function issue(...flags: string[]): Promise<string> {
  const { stdout } = await runWarm(gateway.home, ["token", "issue", ...flags, "--opaque"]);
  return stdout.trim();
}

async function codeOf(token: string): Promise<unknown> {
  return (await gateway.get("/api/me", token)).body.code;
}

/** The ids in the forms that revoke a token, with the names of the tokens. */
function revocable(page: string): Map<string, string> {
  const forms = page.matchAll(
    /action="\/sessions\/revoke".*?name="token" value="([^"]+)".*?the token (\S+) of/gs,
  );
  return new Map(Array.from(forms, ([, id = "", name = ""]) => [name, id]));
}

t.test("users see and revoke their own tokens, administrators all", async (t) => {
  const [ofAlice, ofBob, another] = [
    await issue("alice", "--name", "nightly"),
    await issue("bob", "--name", "backup"),
    await issue("bob", "--name", "another", "--database", "main"),
  ];
  t.equal(await codeOf(ofAlice), undefined);
  const alice = await signedIn(url, "alice");
  const own = (await alice.get("/sessions")).text;
  t.strictSame([...revocable(own).keys()], ["nightly"]);
  t.match(textOf(own), /Issued tokens .* alice nightly [\da-f-]{36} \* \d{4}-/);
  t.notMatch(textOf(own), /nightly [\da-f-]{36} \* [^ ]+ [^ ]+ never/, "it was used");

  const root = await signedIn(url, "root");
  const all = revocable((await root.get("/sessions")).text);
  t.strictSame([...all.keys()], ["another", "backup", "nightly"]);
  const foreign = { token: all.get("backup") ?? "" };
  t.equal((await alice.post("/sessions/revoke", foreign)).status, 404);
  t.equal(await codeOf(ofBob), undefined);
  const dora = await signedIn(url, "dora");
  t.notMatch((await dora.get("/access/user?user=bob")).text, "backup");

  const token = revocable(own).get("nightly") ?? "";
  t.match(await alice.post("/sessions/revoke", { token }), {
    status: 303,
    headers: { location: "/sessions" },
  });
  t.equal(await codeOf(ofAlice), "token_revoked");
  t.strictSame([...revocable((await alice.get("/sessions")).text).keys()], []);

  const page = "/access/user?user=bob";
  t.strictSame([...revocable((await root.get(page)).text).keys()], ["another", "backup"]);
  t.match(await root.post("/sessions/revoke", { ...foreign, page: "user" }), {
    status: 303,
    headers: { location: page },
  });
  t.equal(await codeOf(ofBob), "token_revoked");
  t.equal(await codeOf(another), undefined);
});

t.test("the log says why nothing was revoked in the console", async (t) => {
  await issue("alice", "--name", "kept");
  const alice = await signedIn(url, "alice");
  const token = revocable((await alice.get("/sessions")).text).get("kept") ?? "";
  await alice.get("/sessions/password");
  const file = path.join(gateway.home, "revocations");
  renameSync(file, `${file}.old`);
  mkdirSync(file);
  const change = { password: passwordOf("alice"), new_password: "another password" };
  for (const [place, fields] of [
    ["/sessions/revoke", { token }],
    ["/sessions/password", change],
  ] as const) {
    t.equal((await alice.post(place, fields)).status, 503);
    const line = await gateway.service.logged((one) => one.path === place && one.msg === "refused");
    t.match(line, { code: "revocation_failed", detail: /is not a regular file/ });
  }
  rmdirSync(file);
  renameSync(`${file}.old`, file);
});

t.test("the overview warns of tokens that expire within 14 days", async (t) => {
  await issue("alice", "--name", "soon", "--expires", "13d");
  await issue("bob", "--name", "later", "--expires", "15d");
  const warned = async (name: string) => {
    const text = textOf((await (await signedIn(url, name)).get("/overview")).text);
    return /Tokens that expire within 14 days(.*?)(?:Recent changes|$)/.exec(text)?.[1] ?? "";
  };
  t.match(await warned("root"), /alice soon [\da-f-]{36} \d{4}-/);
  t.notMatch(await warned("root"), "later");
  t.match(await warned("alice"), "soon");
  t.equal(await warned("bob"), "");
});

t.test("users change their own password in the console and stay signed in", async (t) => {
  const login = await tokenOf(gateway, "bob");
  const machine = await issue("bob");
  const bob = await signedIn(url, "bob");
  const other = await signedIn(url, "bob");
  const change = (fields: Record<string, string>) => bob.post("/sessions/password", fields);
  await bob.get("/sessions/password");
  const password = passwordOf("bob");
  t.match(await change({ password: "wrong horse", new_password: "another password" }), {
    status: 401,
    text: /Incorrect password/,
  });
  t.match(await change({ password, new_password: "short" }), { status: 400, text: /at least 8/ });
  t.equal(await codeOf(login), undefined, "nothing has changed");
  const answer = await change({ password, new_password: "another password" });
  t.match(answer, { status: 303, headers: { location: "/sessions" } });
  t.match((await bob.get("/sessions")).text, "(this one)");
  t.match((await other.get("/sessions")).headers, { location: /^\/sign-in/ });
  for (const token of [login, machine]) t.equal(await codeOf(token), "token_revoked");
  t.ok(await gateway.login("bob", "another password"));
});

t.test("an administrator unlocks a user in the console, also by enabling", async (t) => {
  const attempt = async (password: string) =>
    (await gateway.send("POST", "/login", { username: "dora", password })).status;
  const lock = async () => {
    while ((await attempt("a wrong one")) === 401);
  };
  await lock();
  t.equal(await attempt(passwordOf("dora")), 429);
  const client = await signedIn(url, "root");
  t.match((await client.get("/access/user?user=dora")).text, "action=unlock");
  const wrong = await client.submit("/access/act?user=dora&action=unlock", { password: "wrong" });
  t.equal(wrong.status, 401);
  t.equal(await attempt(passwordOf("dora")), 429);
  for (const action of ["unlock", "enable"]) {
    await lock();
    t.equal((await client.submit(`/access/act?user=dora&action=${action}`)).status, 303);
    t.equal(await attempt(passwordOf("dora")), 200, action);
  }
});

t.test("each of these changes is an audit line", async (t) => {
  await gateway.service.stop("SIGTERM");
  const lines = readFileSync(`${gateway.home}/audit.log`, "utf8").trim().split("\n");
  const changes = lines
    .map((line) => JSON.parse(line))
    .filter(({ msg, author }) => msg === "change" && author.kind === "console")
    .flatMap((line) => line.changes.map((one: object) => ({ by: line.author.name, ...one })));
  t.match(changes, [
    { by: "alice", change: "token revoked", user: "alice", token: /^[\da-f-]{36}$/ },
    { by: "root", change: "token revoked", user: "bob" },
    { by: "bob", change: "user changed", user: "bob", fields: ["password"] },
    { by: "bob", change: "tokens revoked", user: "bob" },
    { by: "root", change: "failed logins cleared", user: "dora" },
  ]);
  t.equal(changes.length, 5);
});
