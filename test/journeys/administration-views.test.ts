import t from "tap";
import { grantOn } from "../../src/access/snapshot.ts";
import { noel, staff } from "./administration.ts";
import { openStaffed, snapshotOn, tokenOf } from "./staff.ts";

t.test("each sees those whom it may grant to, and never a hash", async (t) => {
  const { gateway } = await openStaffed(t, staff, { more: noel });
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
    const headers = { authorization: `Bearer ${await tokenOf(gateway, name, database)}` };
    const access = await gateway.request("/api/access", { headers });
    const listed = JSON.parse(access.text).access.map(
      (entry: Record<string, string>) => `${entry.username} ${entry.database} ${entry.role}`,
    );
    t.strictSame(listed.sort(), [...entries].sort(), `${caller}: grants`);
    const known = await gateway.request("/api/users", { headers });
    const names = JSON.parse(known.text).users.map((user: { username: string }) => user.username);
    t.strictSame(names.sort(), users, `${caller}: users`);
    t.notMatch(access.text + known.text, /argon2|hash/);
  }
  for (const caller of ["wim", "rita", "vera"]) {
    const headers = { authorization: `Bearer ${await tokenOf(gateway, caller)}` };
    for (const route of ["/api/access", "/api/users"]) {
      t.equal((await gateway.request(route, { headers })).body.code, "role_insufficient");
    }
  }
});

t.test("everybody is told who it is and what its token opens", async (t) => {
  const { gateway } = await openStaffed(t, staff);
  const me = async (name: string, database?: string) => {
    const headers = { authorization: `Bearer ${await tokenOf(gateway, name, database)}` };
    return (await gateway.request("/api/me", { headers })).body;
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

t.test("a percent-encoded name is decoded once, and must be a name then", async (t) => {
  const { gateway } = await openStaffed(t, staff);
  const root = await tokenOf(gateway, "root");
  const put = (route: string) =>
    gateway.send("PUT", `/api/access/${route}`, { role: "ReadOnly" }, root);
  for (const route of ["rita/%2A", "rita/*", "r%69ta/s%69de", "idp%3Aalice/main", "ruth/%2a"]) {
    t.equal((await put(route)).status, 200, route);
  }
  t.strictSame([...(snapshotOn(gateway).grants.get("rita")?.keys() ?? [])], ["main", "*", "side"]);
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
