import t, { type Test } from "tap";
import { readHolder } from "../../src/core/access/grant.ts";
import { grantOn } from "../access/kit.ts";
import { type Answer, auditOf, type TestGateway } from "../kit/gateway.ts";
import { openStaffed, putInForce, snapshotOn, textOf, tokenOf } from "./staff.ts";

const staff = [
  "root * Owner",
  "rex * Owner",
  "olga main Owner",
  "otto main Owner",
  "dora main DbAdmin",
  "dirk main DbAdmin",
  "wim main ReadWrite",
  "rita main ReadOnly",
  "ruth main ReadOnly",
  "solo side Owner",
  "wide * DbAdmin",
  "dana * DbAdmin",
  "dana main ReadOnly",
  "vera * ReadWrite",
  "nick * ReadWrite",
  "nick main ReadOnly",
  "nora * DbAdmin",
  "nora main ReadOnly",
  "ulla main ReadOnly",
  "ulla side ReadOnly",
];

const noel = '[[users]]\nusername = "noel"\n';

/** `<method> <user> [<database> [<role>] | tokens | disabled | email]`. */
async function act(gateway: TestGateway, request: string, token: string): Promise<Answer> {
  const [method = "", name = "", what, role] = request.split(" ").map(encodeURIComponent);
  if (method === "PATCH") {
    const fields = what === "email" ? { email: "new@example.com" } : { disabled: true };
    return gateway.send(method, `/api/users/${name}`, fields, token);
  }
  if (what === undefined || what === "tokens") {
    const route = what === undefined ? name : `${name}/tokens`;
    return gateway.send(method, `/api/users/${route}`, undefined, token);
  }
  const content = role === undefined ? undefined : { role };
  return gateway.send(method, `/api/access/${name}/${what}`, content, token);
}

const { gateway } = await openStaffed(t, staff, { more: noel });
const original = textOf(gateway);

type Rule = [rule: string, caller: string, request: string, expected: string];

/** `test/access/administration.test.ts` has every rule. */
const grants: Rule[] = [
  ["an administrator raises", "root", "PUT wim main DbAdmin", "200"],
  ["an Owner changes no other Owner", "olga", "PUT otto main ReadOnly", "role_insufficient"],
  ["an Owner gives nothing elsewhere", "olga", "PUT wim side ReadOnly", "no_grant"],
  ["a DbAdmin undoes no other narrowing", "dora", "DELETE nora main", "role_insufficient"],
  ["a ReadOnly gives up all", "rita", "DELETE rita main", "200"],
  ["a limited token stays on it", "root for main", "PUT wim side ReadOnly", "token_database"],
  ["an unknown name gets no grant", "root", "PUT ghost main ReadOnly", "user_not_found"],
  ["nor is that revealed", "wim", "PUT ghost main ReadOnly", "role_insufficient"],
  ["an external name needs no record", "dora", "PUT idp:alice main ReadOnly", "200"],
  ["another case is a conflict", "root", "PUT rita MAIN ReadOnly", "database_case_conflict"],
  ["a grant that is not there is not taken", "root", "DELETE rita side", "grant_not_found"],
];

const users: Rule[] = [
  ["an administrator removes anybody", "root", "DELETE otto", "200"],
  ["an unknown user is not removed", "root", "DELETE ghost", "user_not_found"],
  ["an Owner does not remove users", "olga", "DELETE dirk", "role_insufficient"],
  ["without the right, existence is not revealed", "dora", "DELETE ghost", "role_insufficient"],
  ["a limited token does not remove users", "root for main", "DELETE ruth", "token_database"],
  ["an administrator disables", "root", "PATCH ruth disabled", "200"],
  ["anybody sets its own email", "rita", "PATCH rita email", "200"],
  ["an administrator revokes anybody's tokens", "root", "DELETE ruth tokens", "200"],
  ["anybody revokes its own", "vera", "DELETE vera tokens", "200"],
];

const statuses: Record<string, number> = {
  user_not_found: 404,
  grant_not_found: 404,
  database_case_conflict: 409,
};

async function checkRules(t: Test, rules: readonly Rule[]): Promise<void> {
  const tokens = new Map<string, string>();
  for (const [rule, caller, request, expected] of rules) {
    const [name = "", database] = caller.split(" for ");
    const token = tokens.get(caller) ?? (await tokenOf(gateway, name, database));
    tokens.set(caller, token);
    const answer = await act(gateway, request, token);
    const sentence = `${rule}: ${caller}, ${request}`;
    if (expected === "200") {
      t.equal(answer.status, 200, `${sentence}: ${answer.body.code}`);
      checkDone(t, request);
      await putInForce(gateway, original);
    } else {
      t.equal(answer.body.code, expected, sentence);
      t.equal(answer.status, statuses[expected] ?? 403);
      t.equal(textOf(gateway), original, "nothing was written");
    }
    t.notMatch(answer.text, /argon2/);
  }
}

function checkDone(t: Test, request: string): void {
  const [method, name = "", what = "", role] = request.split(" ");
  const snapshot = snapshotOn(gateway);
  if (method === "PUT") t.equal(grantOn(snapshot, name, what)?.role, role);
  else if (method === "PATCH") {
    const { email, disabled } = snapshot.users.get(name) ?? {};
    t.ok(what === "email" ? email === "new@example.com" : disabled === true);
  } else if (what === "") {
    t.notOk(
      snapshot.users.has(name) || snapshot.grants.has(readHolder(name)),
      "the user and its grants",
    );
  } else if (what !== "tokens") t.notOk(snapshot.grants.get(readHolder(name))?.has(what));
}

t.test("only permitted callers give and take grants", async (t) => {
  await checkRules(t, grants);
});

t.test("only permitted callers manage users", async (t) => {
  await checkRules(t, users);
});

t.test("an administrator records that two names are the same person", async (t) => {
  const text = textOf(gateway);
  t.teardown(() => putInForce(gateway, text));
  const token = await tokenOf(gateway, "wide");
  const root = await tokenOf(gateway, "root");
  const patch = (name: string, body: object, by = root) =>
    gateway.send("PATCH", `/api/users/${name}`, body, by);
  const cases: [name: string, body: object, by: string, status: number, code: string][] = [
    ["wim", { same_as: "wim" }, root, 400, "invalid_username"],
    ["wim", { same_as: "a b" }, root, 400, "invalid_username"],
    ["wim", { same_as: "ghost" }, root, 404, "user_not_found"],
    ["wim", { same_as: 1 }, root, 400, "invalid_body"],
    ["ghost", { same_as: "wim" }, root, 404, "user_not_found"],
    ["wide", { same_as: "staff:wim" }, token, 403, "role_insufficient"],
  ];
  for (const [name, body, by, status, code] of cases) {
    t.match(await patch(name, body, by), { status, body: { code } }, JSON.stringify(body));
  }
  const made = await patch("wim", { same_as: "staff:wim" });
  t.match(made, { status: 200, body: { user: { username: "wim", same_as: "staff:wim" } } });
  const { changes } = await auditOf(gateway, made);
  t.strictSame(changes, [{ change: "user changed", user: "wim", fields: ["same_as"] }]);
  const listed = await gateway.get("/api/users", root);
  t.match(listed.text, '"username":"wim"');
  t.match(listed.text, '"same_as":"staff:wim"');
  t.equal((await patch("vera", { same_as: "wim" })).status, 200);
  t.match(textOf(gateway), 'same_as = "wim"');
  t.match((await patch("wim", { same_as: null })).body, { user: { same_as: undefined } });
  t.equal((await gateway.send("DELETE", "/api/users/wim", undefined, root)).status, 200);
  t.notMatch(textOf(gateway), "same_as", "a new user of this name would be another person");
});

t.test("a caller sees the users and grants of its databases, and never a hash", async (t) => {
  const everybody = [...new Set(staff.map((entry) => entry.split(" ")[0])), "noel"].sort();
  const onMain = staff.filter((entry) => entry.split(" ")[1] === "main");
  const people = (entries: string[]) => [...new Set(entries.map((e) => e.split(" ")[0]))].sort();
  const narrowed = staff.filter((entry) => entry.split(" ")[1] !== "main");
  const views: [caller: string, entries: string[], users: (string | undefined)[]][] = [
    ["root", staff, everybody],
    ["olga", onMain, people(onMain)],
    ["dora", onMain, people(onMain)],
    ["dora for main", onMain, people(onMain)],
    ["root for main", onMain, people(onMain)],
    ["wide", staff, people(staff)],
    ["dana", narrowed, people(narrowed)],
  ];
  for (const [caller, entries, users] of views) {
    const [name = "", database] = caller.split(" for ");
    const token = await tokenOf(gateway, name, database);
    const access = await gateway.get("/api/access", token);
    const listed = JSON.parse(access.text).access.map(
      (entry: Record<string, string>) => `${entry.username} ${entry.database} ${entry.role}`,
    );
    t.strictSame(listed.sort(), [...entries].sort(), `${caller}: grants`);
    const known = await gateway.get("/api/users", token);
    const names = JSON.parse(known.text).users.map((user: { username: string }) => user.username);
    t.strictSame(names.sort(), users, `${caller}: users`);
    t.notMatch(access.text + known.text, /argon2|hash/);
  }
  for (const caller of ["wim", "rita", "vera"]) {
    const token = await tokenOf(gateway, caller);
    for (const route of ["/api/access", "/api/users"]) {
      t.equal((await gateway.get(route, token)).body.code, "role_insufficient");
    }
  }
});

t.test("every user can read its own account and what its token allows", async (t) => {
  const me = async (name: string, database?: string) => {
    return (await gateway.get("/api/me", await tokenOf(gateway, name, database))).body;
  };
  const own = { username: "ulla", email: null, disabled: false };
  const main = { database: "main", role: "ReadOnly" };
  const side = { database: "side", role: "ReadOnly" };
  t.match(await me("ulla"), { status: "success", user: own, token: { database: "*" } });
  t.strictSame((await me("ulla")).access, [main, side]);
  t.match(await me("ulla", "side"), { token: { expires: Number, database: "side" } });
  t.strictSame((await me("ulla", "side")).access, [side]);
  t.notMatch(JSON.stringify(await me("root")), /argon2|hash/);
});

t.test("a percent-encoded name is decoded once and then validated", async (t) => {
  const root = await tokenOf(gateway, "root");
  const put = (route: string) =>
    gateway.send("PUT", `/api/access/${route}`, { role: "ReadOnly" }, root);
  for (const route of ["rita/%2A", "rita/*", "r%69ta/s%69de", "idp%3Aalice/main", "ruth/%2a"]) {
    t.equal((await put(route)).status, 200, route);
  }
  t.strictSame(
    [...(snapshotOn(gateway).grants.get(readHolder("rita"))?.keys() ?? [])],
    ["main", "*", "side"],
  );
  t.equal(grantOn(snapshotOn(gateway), "idp:alice", "main")?.role, "ReadOnly");
  const refused: [route: string, code: string][] = [
    ["rita/%252A", "invalid_database"],
    ["rita/a%2Fb", "invalid_database"],
    ["rita/**", "invalid_database"],
    ["rita/%", "invalid_database"],
    ["%252E%252E/main", "invalid_username"],
    ["a%20b/main", "invalid_username"],
    ["%ff/main", "invalid_username"],
    ["*/main", "invalid_username"],
    ["idp%3A/main", "invalid_username"],
    ["constructor/main", "user_not_found"],
  ];
  for (const [route, code] of refused) {
    t.equal((await put(route)).body.code, code, route);
  }
});
