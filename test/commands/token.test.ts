import { createHash } from "node:crypto";
import { chmodSync, existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import t, { type Test } from "tap";
import { keyFilesIn } from "../../src/core/identity/key-file.ts";
import { ensureSigner } from "../../src/core/identity/key-store.ts";
import { grant, groupGrant, user } from "../access/kit.ts";
import { decodePart, encodePart, readKey } from "../identity/forge.ts";
import { passwordOf, staffedHome, succeed, tokenOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, temporaryHome, writeConfiguration } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { allowAll, obtainTokens, signInAt } from "../oauth/flow.ts";
import { IdentityProvider } from "../oauth/identity-provider.ts";
import { registered } from "../oauth/kit.ts";
import { failed, type Installation, install, people, program } from "./kit.ts";
import { noTerminal, Terminal } from "./terminal.ts";

const DAY = 86_400;
const robots = [
  user("robot", ""),
  user("idp:robot", ""),
  grant("robot", "main", "ReadWrite"),
  grant("idp:robot", "main", "ReadOnly"),
].join("");

/** Robots, and the key that a first start makes. */
async function installRobots(t: Test): Promise<Installation> {
  const gatehouse = install(t, `${people}${robots}`);
  const keys = keyFilesIn(path.join(gatehouse.home, "keys"), { checkRead: true });
  await ensureSigner(keys, "ES256");
  return gatehouse;
}

function forRobots(
  name: string,
  body: (t: Test, gatehouse: Installation) => Promise<unknown>,
): void {
  t.test(name, async (t) => body(t, await installRobots(t)));
}

function now(): number {
  return Math.floor(Date.now() / 1000);
}

async function issue(gatehouse: Installation, flags: string): Promise<string> {
  const { code, stdout, stderr } = await gatehouse.run(`token issue ${flags}`);
  if (code !== 0) throw new Error(stderr);
  return stdout;
}

function revocationsIn(gatehouse: Installation): Record<string, unknown>[] {
  const lines = readFileSync(path.join(gatehouse.home, "revocations"), "utf8").trimEnd();
  return lines.split("\n").map((line) => JSON.parse(line));
}

forRobots("token issue prints only the token on standard output", async (t, gatehouse) => {
  const start = now();
  const { code, stdout, stderr } = await gatehouse.run("token issue robot --database main");
  t.equal(code, 0);
  t.match(stdout, /^[\w-]+\.[\w-]+\.[\w-]+\n$/);
  const claims = decodePart(stdout.trim(), 1);
  t.strictSame(Object.keys(claims).sort(), [
    "aud",
    "cred",
    "database",
    "exp",
    "iat",
    "iss",
    "jti",
    "role",
    "sub",
  ]);
  t.match(claims, { sub: "robot", database: "main", role: "ReadWrite", cred: "" });
  t.match(claims, { iss: "gatehouse", aud: "gatehouse" });
  t.ok(Number(claims.iat) >= start && Number(claims.iat) <= now());
  t.equal(Number(claims.exp) - Number(claims.iat), 90 * DAY);
  t.match(decodePart(stdout.trim(), 0), { typ: "JWT", kid: readKey(gatehouse.home).kid });
  t.match(stderr, `Token ${claims.jti} of robot for main, until `);
  t.match(stderr, `${program} token revoke ${claims.jti}`);
  t.notMatch(stderr, stdout.trim());
});

forRobots("the token's claims follow the user and the options", async (t, gatehouse) => {
  const cases: [flags: string, claims: Record<string, unknown>][] = [
    ["robot", { database: "*", role: "ReadWrite" }],
    ["robot --database *", { database: "*", role: "ReadWrite" }],
    ["alice", { database: "*", role: "ReadWrite", cred: /^[\w-]{11}$/ }],
    ["alice --database other", { database: "other", role: "ReadOnly" }],
    ["idp:robot --database main", { sub: "idp:robot", role: "ReadOnly", cred: "" }],
    ["root --database anything", { role: "Owner" }],
  ];
  for (const [flags, claims] of cases) {
    t.match(decodePart(await issue(gatehouse, flags), 1), claims, flags);
  }
});

t.test("--expires accepts seconds, minutes, hours, days and dates, up to 366 days", async (t) => {
  const gatehouse = await installRobots(t);
  const lifetimes: [text: string, seconds: number][] = [
    ["1s", 1],
    ["30m", 1800],
    ["12h", 12 * 3600],
    ["366d", 366 * DAY],
  ];
  for (const [text, seconds] of lifetimes) {
    const { iat, exp } = decodePart(await issue(gatehouse, `robot --expires ${text}`), 1);
    t.equal(Number(exp) - Number(iat), seconds, text);
  }
  const { exp } = decodePart(await issue(gatehouse, "robot --expires tomorrow"), 1);
  t.equal(Number(exp), Math.floor(Date.now() / 1000 / DAY + 1) * DAY, "the next midnight, UTC");
  for (const text of ["367d", "31622401s", "0d", "1.5d", "90", "2126-12-24", "today"]) {
    const { code, stdout, stderr } = await gatehouse.run(`token issue robot --expires ${text}`);
    t.strictSame([code, stdout], [2, ""], text);
    t.match(stderr, /--expires.*(at most 366d|1s to 366d|Allowed: 2h|in the past)/s);
  }
});

forRobots("token issue refuses users who could not use the token", async (t, gatehouse) => {
  const refused: [flags: string, reason: string][] = [
    ["nobody", `User not found: nobody (\`${program} user list\` lists all users)`],
    ["idp:nobody", `User not found: idp:nobody (\`${program} user list\` lists all users)`],
    ["bob", `bob is disabled; run \`${program} user enable bob\` first`],
    ["robot --database other", "Grant not found: robot on other (robot has main:ReadWrite)"],
    [
      "robot --database MAIN",
      "Grant not found: robot on MAIN (robot has main:ReadWrite); the access file spells this database in another case",
    ],
    [
      "robot --database a.b.c",
      "Invalid database: '*' or 1 to 63 of letters, digits, '_', '-', or two such names with a dot between",
    ],
  ];
  for (const [flags, reason] of refused) {
    t.strictSame(await gatehouse.run(`token issue ${flags}`), failed(1, reason), flags);
  }
});

forRobots("a new token is not covered by earlier revocations", async (t, gatehouse) => {
  t.equal((await gatehouse.run("token revoke --user robot")).code, 0);
  const [{ before = 0 } = {}] = revocationsIn(gatehouse);
  t.ok(Number(decodePart(await issue(gatehouse, "robot"), 1).iat) >= Number(before));

  const ahead = now() + 1000;
  const text = gatehouse.text.replace('"robot"\n', `"robot"\ntokens_valid_after = ${ahead}\n`);
  writeFileSync(gatehouse.accessFile, text);
  const { iat, exp } = decodePart(await issue(gatehouse, "robot --expires 1h"), 1);
  t.equal(iat, ahead + 1);
  t.ok(Number(exp) <= now() + 3600, "it lives no longer for that");
});

forRobots("token revoke records one token, or all of a user", async (t, gatehouse) => {
  const { jti } = decodePart(await issue(gatehouse, "robot"), 1);
  const one = await gatehouse.run(`token revoke ${jti}`);
  t.strictSame(one, { code: 0, stdout: `Revoked the token ${jti}.\n`, stderr: "" });
  const all = await gatehouse.run("token revoke --user robot");
  t.match(all, { code: 0, stdout: "Revoked all current tokens of robot.\n" });
  const [first, second] = revocationsIn(gatehouse);
  t.equal(first?.jti, jti);
  t.ok(Number(first?.until) >= now() + 365 * DAY, "for as long as any token can live");
  t.equal(second?.user, "robot");
  t.ok(Number(second?.before) > now() - 60);
  t.equal(statSync(path.join(gatehouse.home, "revocations")).mode & 0o777, 0o600);
});

t.test("token revoke accepts ids in upper case and ids of MCP access tokens", async (t) => {
  const gatehouse = await installRobots(t);
  const uuid = "0b9c3bd1-8f3f-4a57-9a3c-5f3d3a1c7a43";
  const other = "Ab_-".padEnd(43, "Z");
  t.equal((await gatehouse.run(`token revoke ${uuid.toUpperCase()}`)).code, 0);
  t.equal((await gatehouse.run(`token revoke ${other}`)).code, 0);
  const ids = revocationsIn(gatehouse).map(({ jti }) => jti);
  t.strictSame(ids, [uuid, other]);
});

forRobots("token revoke accepts external users with and without a record", async (t, gatehouse) => {
  const external = ["staff:bob", "idp:robot"];
  for (const name of external) {
    const { code, stdout } = await gatehouse.run(`token revoke --user ${name}`);
    t.match({ code, stdout }, { code: 0, stdout: `all current tokens of ${name}` });
  }
  t.strictSame(
    revocationsIn(gatehouse).map(({ user }) => user),
    external,
  );
});

forRobots("token revoke refuses input that would revoke nothing", async (t, gatehouse) => {
  const token = (await issue(gatehouse, "robot")).trim();
  const refused: [flags: string[], code: number, stderr: RegExp][] = [
    [[], 2, /give either a token id/],
    [["x", "--user", "robot"], 2, /give either a token id/],
    [[token], 2, /this is a token; give only its id, which `.* token explain -` shows/],
    [[""], 2, /it is no token id; allowed: a UUID such as /],
    [["robot"], 2, /it is no token id; allowed: a UUID such as /],
    [["0b9c3bd1-8f3f-4a57-9a3c-5f3d3a1c7a4"], 2, /no issued token has this name/],
    [["--user", "nobody"], 1, /User not found: nobody/],
    [["--user", "staff:"], 1, /User not found: staff:/],
    [["--user", "a:b,c"], 1, /User not found: a:b,c/],
  ];
  for (const [flags, code, stderr] of refused) {
    const result = await gatehouse.run("token revoke", flags);
    t.match(result, { code, stdout: "", stderr });
    t.notMatch(result.stderr, token);
  }
  t.throws(() => revocationsIn(gatehouse), { code: "ENOENT" }, "nothing was written");
});

t.test("token issue creates no keys, since a gateway may use keys that were moved", async (t) => {
  const gatehouse = install(t, `${people}${robots}`);
  const { code, stderr } = await gatehouse.run("token issue robot");
  t.equal(code, 1);
  t.match(stderr, "contains no signing key for ES256: restore the keys");
  t.notOk(existsSync(path.join(gatehouse.home, "keys")));
});

t.test("token issue --opaque prints a short token and stores its hash", async (t) => {
  const gatehouse = install(t, `${people}${robots}`);
  const { code, stdout, stderr } = await gatehouse.run("token issue robot --opaque --name ci");
  t.equal(code, 0);
  t.match(stdout, /^gh_[\w-]{43}\n$/);
  t.notMatch(stderr, stdout.trim());
  const text = readFileSync(path.join(gatehouse.home, "tokens"), "utf8");
  const record = JSON.parse(text);
  const digest = createHash("sha256").update(stdout.trim()).digest("base64url");
  t.match(record, { name: "ci", user: "robot", database: "*", sha256: digest, cred: "" });
  t.match(stderr, `Token ${record.id} of robot for all databases of the user, until `);
  t.notOk(existsSync(path.join(gatehouse.home, "keys")), "it needs no key");
  t.match((await gatehouse.run("token issue bob --opaque")).stderr, "bob is disabled");
});

forRobots("names of tokens can be confused with neither ids nor tokens", async (t, gatehouse) => {
  for (const name of ["ci", "Nightly backup", "a.b.c", "größe", "x".repeat(64)]) {
    const { code } = await gatehouse.run("token issue robot --opaque", ["--name", name]);
    t.equal(code, 0, name);
  }
  const uuid = "0B9c3bd1-8f3f-4a57-9a3c-5f3d3a1c7a43";
  for (const name of ["", " ci", "a  b", "a\nb", "x".repeat(65), uuid, "y".repeat(43), "gh_x"]) {
    const refused = await gatehouse.run("token issue robot --opaque", ["--name", name]);
    t.match(refused, { code: 2, stdout: "", stderr: /Allowed: 1 to 64 of letters/ }, name);
  }
});

t.test("token list shows every issued token, and token revoke takes its name", async (t) => {
  const gatehouse = await installRobots(t);
  await issue(gatehouse, "robot --name ci --opaque");
  await issue(gatehouse, "robot --name ci --database main");
  await issue(gatehouse, "alice --name own");
  const listed = async (flags = "") => {
    const { stdout } = await gatehouse.run(`token list --json${flags}`);
    const tokens: { id: string; user: string; name: string }[] = JSON.parse(stdout).tokens;
    return tokens;
  };
  const all = await listed();
  t.strictSame(
    all.map(({ user, name }) => `${user} ${name}`),
    ["alice own", "robot ci", "robot ci"],
  );
  t.match(all[1], { database: "main", issued: /T.*Z$/, expires: /T.*Z$/ });
  t.equal((await listed(" --user robot")).length, 2);
  const table = (await gatehouse.run("token list")).stdout;
  t.match(
    table,
    /^USERNAME +TOKEN +NAME +DATABASE +ISSUED +EXPIRES +LAST USE\nalice +[\da-f-]{36} +own /,
  );

  const [, second, first] = all.map(({ id }) => id);
  const several = await gatehouse.run("token revoke ci");
  t.strictSame(
    several,
    failed(
      1,
      "several tokens are named ci; give the id of one:",
      `${second} of robot`,
      `${first} of robot`,
    ),
  );
  t.equal((await listed()).length, 3, "nothing was revoked");
  t.equal((await gatehouse.run(`token revoke ${first}`)).code, 0);
  t.match(await gatehouse.run("token revoke ci"), {
    code: 0,
    stdout: `Revoked the token ${second}.\n`,
  });
  t.match(await gatehouse.run("token revoke ci"), {
    code: 2,
    stderr: /no issued token has this name/,
  });
  t.strictSame(
    (await listed()).map(({ name }) => name),
    ["own"],
  );
});

forRobots("tokens that ended otherwise leave the list as well", async (t, gatehouse) => {
  const { kid } = readKey(gatehouse.home);
  await issue(gatehouse, "robot --name key");
  await issue(gatehouse, "robot --name opaque --opaque");
  await issue(gatehouse, "alice --name password --opaque");
  await issue(gatehouse, "robot --name short --opaque --expires 1s");
  const names = async () => {
    const { tokens } = JSON.parse((await gatehouse.run("token list --json")).stdout);
    return tokens.map(({ name }: { name: string }) => name).sort();
  };
  await eventually("one has expired", async () => !(await names()).includes("short"));
  t.strictSame(await names(), ["key", "opaque", "password"]);
  t.equal((await gatehouse.run("key rotate")).code, 0);
  t.strictSame(await names(), ["key", "opaque", "password"]);
  t.equal((await gatehouse.run(`key revoke ${kid}`)).code, 0);
  t.strictSame(await names(), ["opaque", "password"]);
  t.equal((await gatehouse.run("user password alice --password-stdin", "new password\n")).code, 0);
  t.strictSame(await names(), ["opaque"]);
  t.equal((await gatehouse.run("token revoke --user robot")).code, 0);
  t.strictSame(await names(), []);
});

t.test("a broken or readable file of tokens is named, and its text is not shown", async (t) => {
  const gatehouse = await installRobots(t);
  const token = (await issue(gatehouse, "robot --opaque")).trim();
  const file = path.join(gatehouse.home, "tokens");
  chmodSync(file, 0o644);
  t.match(await gatehouse.run("token list"), { code: 1, stderr: /tokens: others may read it/ });
  chmodSync(file, 0o600);
  writeFileSync(file, `${token}\n`);
  for (const command of ["token list", "token issue robot --opaque", `token explain ${token}`]) {
    const refused = await gatehouse.run(command);
    t.match(refused, { code: 1, stdout: "", stderr: "tokens:1: is not an issued token" });
    t.notMatch(refused.stderr, token);
  }
});

forRobots("a whole opaque token is not taken for an id", async (t, gatehouse) => {
  const token = (await issue(gatehouse, "robot --opaque")).trim();
  const refused = await gatehouse.run(`token revoke ${token}`);
  t.match(refused, { code: 2, stderr: /give only its id, which .* token explain -/ });
  t.notMatch(refused.stderr, token);
});

t.test("token list without entries says so on a terminal", { skip: noTerminal }, async (t) => {
  const gatehouse = install(t);
  const terminal = new Terminal(t, gatehouse.home, ["token", "list"]);
  await terminal.until(/^No tokens are issued\.\s+No apps are connected\.\n/);
  t.equal(await terminal.ended(), 0);
  t.match(
    (await gatehouse.run("token list")).stdout,
    /^USERNAME +TOKEN +NAME .*\n\nUSERNAME +CLIENT .*\n$/,
  );
});

const provider = await IdentityProvider.start(t, { sub: "ann", groups: ["engineering"] });
let questions = 0;
const endpoint = createServer((_, response) => {
  questions++;
  response.end('{"active":false}');
});
const asks = `http://127.0.0.1:${await listening(t, endpoint)}/introspect`;
const secretFile = path.join(temporaryHome(t), "secret");
writeFileSync(secretFile, provider.clientSecret, { mode: 0o600 });
const rights = `${grant("alice", "main", "ReadWrite")}${grant("alice", "archive", "ReadOnly")}
${groupGrant("staff:engineering", "main", "ReadOnly")}
`;
const port = await freePort();
const config = `
[server]
port = ${port}
[[issuers]]
issuer = "${provider.url}"
prefix = "staff"
opens = ["query"]
audience = "gatehouse"
groups_claim = "groups"
introspection = { url = "${asks}", client_id = "gatehouse", client_secret_file = "${secretFile}" }
login = { client_id = "gatehouse", client_secret_file = "${secretFile}", label = "Sign in" }
`;
const upstream = await new RecordingUpstream().listen(t);
const gateway = await startGateway(t, {
  home: await staffedHome(t, ["root * Owner", "alice app ReadOnly"], rights),
  port,
  config,
  upstream: upstream.url,
});
await provider.open({ redirectUris: [`${gateway.url}/oauth/callback/staff`] });

async function explain(token: string, home = gateway.home) {
  const { code, stdout, stderr } = await runWarm(home, ["token", "explain", token, "--json"]);
  if (stdout === "") throw new Error(stderr);
  return { exit: code, ...JSON.parse(stdout) };
}

t.test("token explain shows user, limits and entries of an app's access token", async (t) => {
  const clientId = await registered(gateway);
  const { accessToken } = await obtainTokens(gateway, {
    clientId,
    username: "alice",
    password: passwordOf("alice"),
    database: "main",
    reach: "read",
  });
  t.match(await explain(accessToken), {
    exit: 0,
    verdict: "accepted",
    issuer: gateway.url,
    opens: ["mcp"],
    user: "alice",
    client: clientId,
    database: "main",
    read_only: true,
    type: "at+jwt",
    scopes: ["mcp:tools", "mcp:resources"],
    claims: { sub: "alice", grant: String },
    entries: [
      { entry: "app", role: "ReadOnly" },
      { entry: "main", role: "ReadWrite" },
      { entry: "archive", role: "ReadOnly" },
    ],
  });
  const forged = `${accessToken.slice(0, accessToken.lastIndexOf("."))}.${"A".repeat(86)}`;
  t.match(await explain(forged), { exit: 1, verdict: "refused", claims: { sub: "alice" } });
  t.equal((await runWarm(gateway.home, ["token", "revoke", "--client", clientId])).code, 0);
  const revoked = { verdict: "refused", code: "token_revoked", detail: "grant_revoked" };
  t.match(await explain(accessToken), revoked);
  const elsewhere = await staffedHome(t, ["alice main ReadWrite"]);
  writeConfiguration(elsewhere, { config });
  t.match(await explain(accessToken, elsewhere), { verdict: "refused", detail: "unknown_key" });
});

t.test("token explain shows the groups of a sign-in and asks the provider nothing", async (t) => {
  const browser = new PlainBrowser(gateway.url, provider.url);
  const signedIn = await signInAt(gateway, browser);
  const { accessToken } = await allowAll(gateway, browser, signedIn);
  const requests = provider.requests.length;
  t.match(await explain(accessToken), {
    verdict: "accepted",
    user: "staff:ann",
    groups: ["staff:engineering"],
    entries: [{ entry: "main", role: "ReadOnly", group: "staff:engineering" }],
  });
  t.equal(provider.requests.length, requests);
  const moved = path.join(gateway.home, "moved.toml");
  writeFileSync(moved, config.replace(provider.url, "https://new.example"));
  const flags = ["token", "explain", accessToken, "--json", "--config", moved];
  const { stdout } = await runWarm(gateway.home, flags);
  const refused = { code: "token_revoked", detail: "unknown_issuer" };
  t.match(JSON.parse(stdout), refused, "as the gateway refuses it after that change");
});

t.test("token explain shows user and entries of a login token", async (t) => {
  const token = await tokenOf(gateway, "alice", "main");
  t.match(await explain(token), {
    exit: 0,
    verdict: "accepted",
    issuer: "gatehouse",
    user: "alice",
    database: "main",
    type: "JWT",
    claims: { sub: "alice", aud: "gatehouse" },
    entries: [{ entry: "app" }, { entry: "main", role: "ReadWrite" }, { entry: "archive" }],
  });
  await succeed(gateway.send("POST", "/logout", undefined, token));
  t.match(await explain(token), { verdict: "refused", detail: "revoked" });
});

t.test("token explain sends no opaque token, and names the issuer that would know", async (t) => {
  const known = {
    verdict: "unknown",
    issuer: provider.url,
    prefix: "staff",
    opens: ["query"],
    asks,
    note: `an opaque token: only introspection by ${provider.url} would tell, which was not asked`,
  };
  for (const token of ["ya29.opaque", "a.b.c"]) {
    t.match(await explain(token), { exit: 0, ...known, claims: undefined }, token);
  }
  t.equal(questions, 0);
  const without = await staffedHome(t, ["alice main ReadWrite"]);
  const note = "an opaque token, and no issuer has introspection";
  const refused = { code: "token_invalid", verdict: "refused", detail: "no_jwt", note };
  t.match(await explain("opaque", without), refused);
});

t.test("claims cannot write to the terminal", async (t) => {
  const clear = "\u009b2J\u001b[2J\u202e";
  const claims = { iss: clear, [clear]: clear, list: [clear], deep: { list: [clear] } };
  const token = [{ alg: clear, kid: clear, typ: clear }, claims].map(encodePart).join(".");
  const { stdout } = await runWarm(gateway.home, ["token", "explain", `${token}.AAAA`]);
  t.match(stdout, "claim deep: ");
  t.notMatch(stdout.replaceAll("\n", ""), /[\p{Cc}\p{Cf}]/u);
});

t.test("token explain knows opaque tokens, also those that have ended", async (t) => {
  const before = questions;
  const flags = ["token", "issue", "alice", "--opaque", "--name", "ci", "--database", "main"];
  const token = (await runWarm(gateway.home, flags)).stdout.trim();
  const found = await explain(token);
  t.match(found, {
    exit: 0,
    verdict: "accepted",
    issuer: "gatehouse",
    type: "opaque",
    name: "ci",
    user: "alice",
    database: "main",
    entries: [{ entry: "app" }],
  });
  t.equal((await runWarm(gateway.home, ["token", "revoke", found.token])).code, 0);
  t.match(await explain(token), {
    exit: 1,
    verdict: "refused",
    code: "token_revoked",
    name: "ci",
    user: "alice",
    token: found.token,
  });
  const unknown = { exit: 1, code: "token_invalid", note: /no token of the inventory/ };
  t.match(await explain(token.slice(0, -1)), unknown);
  t.equal(questions, before, "no issuer was asked");
});
