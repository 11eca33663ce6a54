import { readFile } from "node:fs/promises";
import t from "tap";
import type { Plan } from "../../src/access/access-rules.ts";
import {
  type Actor,
  planAddUser,
  planGrant,
  planRemoveUser,
} from "../../src/access/administration.ts";
import { parseAccessFile } from "../../src/access/parse.ts";
import { grantOn } from "../../src/access/snapshot.ts";
import { changeAccessFile } from "../../src/access/write.ts";
import { Refusal } from "../../src/refusal.ts";
import { accessFile, grant, user } from "./kit.ts";

const text = `# kept\n${user("root")}${user("alice")}${grant("root", "*", "Owner")}`;

function adding(username: string, actor: Actor = "operator", database = "main"): Plan {
  const fields = {
    email: undefined,
    passwordHash: undefined,
    disabled: false,
    tokensValidAfter: 0,
  };
  return (current) =>
    planAddUser(current, actor, { username, ...fields }, { database, role: "ReadOnly" });
}

t.test("writers of one process are served in order", async (t) => {
  const file = accessFile(t, text);
  const names = Array.from({ length: 20 }, (_, n) => `new${n}`);
  await Promise.all(names.map((name) => changeAccessFile(file, adding(name))));
  const snapshot = parseAccessFile(await readFile(file, "utf8"), file);
  t.strictSame([...snapshot.users.keys()], ["root", "alice", ...names]);
  for (const name of names) t.equal(grantOn(snapshot, name, "main")?.role, "ReadOnly");
});

t.test("each of many is judged by what those before it change", async (t) => {
  const file = accessFile(t, `${text}${user("dora")}${grant("dora", "main", "DbAdmin")}`);
  const dora = { username: "dora", tokenDatabase: "*" };
  const demoting: Plan = (current) =>
    planGrant(current, "operator", { username: "dora", database: "main", role: "ReadOnly" });
  const results = await Promise.allSettled([
    changeAccessFile(file, adding("one", dora)),
    changeAccessFile(file, adding("one")),
    changeAccessFile(file, adding("two")),
    changeAccessFile(file, (current) => planRemoveUser(current, "operator", "alice")),
    changeAccessFile(file, adding("alice")),
    changeAccessFile(file, demoting),
    changeAccessFile(file, adding("three", dora)),
    changeAccessFile(file, (current) => planRemoveUser(current, "operator", "root")),
    changeAccessFile(file, adding("four")),
    changeAccessFile(file, adding("five", "operator", "MAIN")),
    changeAccessFile(file, (current) => planRemoveUser(current, "operator", "root"), {
      force: true,
    }),
  ]);
  t.strictSame(
    results.map((result) => (result.status === "rejected" ? result.reason.code : "written")),
    [
      ...["written", "user_exists", "written", "written", "written", "written"],
      ...[
        "role_insufficient",
        "last_administrator",
        "written",
        "database_case_conflict",
        "written",
      ],
    ],
  );
  const { users } = parseAccessFile(await readFile(file, "utf8"), file);
  t.strictSame([...users.keys()].sort(), ["alice", "dora", "four", "one", "two"]);
});

t.test("one whose revocation fails changes nothing, and those around it are written", async (t) => {
  const file = accessFile(t, text);
  const beforeWrite = () => Promise.reject(new Refusal("revocation_failed"));
  const results = await Promise.allSettled([
    changeAccessFile(file, adding("one")),
    changeAccessFile(file, adding("two"), { beforeWrite }),
    changeAccessFile(file, adding("three")),
  ]);
  t.strictSame(
    results.map((result) => (result.status === "rejected" ? result.reason.code : "written")),
    ["written", "revocation_failed", "written"],
  );
  const { users } = parseAccessFile(await readFile(file, "utf8"), file);
  t.strictSame([...users.keys()], ["root", "alice", "one", "three"]);
});
