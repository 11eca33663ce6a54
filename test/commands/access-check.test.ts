import { appendFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { grant } from "../access/kit.ts";
import { done, install, people } from "./kit.ts";

const answers: [question: string, code: number, answer: string][] = [
  ["alice Select main", 0, "allowed: alice SELECT on main: ReadWrite by the entry for main"],
  ["alice insert main", 0, "allowed: alice INSERT on main: ReadWrite by the entry for main"],
  ["alice SELECT other", 0, "allowed: alice SELECT on other: ReadOnly by the entry for *"],
  [
    "alice Insert other",
    1,
    "denied: alice INSERT on other: the role is not enough: ReadOnly by the entry for *",
  ],
  [
    "alice Preview main",
    0,
    "allowed: alice SELECT and INSERT and UPDATE and DELETE on main: ReadWrite by the entry for main",
  ],
  [
    "alice Preview other",
    1,
    "denied: alice SELECT and INSERT and UPDATE and DELETE on other: the role is not enough: ReadOnly by the entry for *",
  ],
  [
    "alice CreateTable main",
    1,
    "denied: alice CREATE on main: the role is not enough: ReadWrite by the entry for main",
  ],
  [
    "alice Select MAIN",
    1,
    "denied: alice SELECT on MAIN: the file names this database in another case",
  ],
  ["root CreateDatabase new", 0, "allowed: root CREATE DATABASE on new: Owner by the entry for *"],
  ["bob Select main", 1, "denied: bob SELECT on main: the user is disabled"],
  ["bob Select other", 1, "denied: bob SELECT on other: the user is disabled"],
  ["nobody Select main", 1, "denied: nobody SELECT on main: there is no such user"],
  ["ghost Select main", 1, "denied: ghost SELECT on main: there is no such user"],
  [
    "github:eve Select main",
    0,
    "allowed: github:eve SELECT on main: ReadOnly by the entry for main",
  ],
  [
    "github:eve Select other",
    1,
    "denied: github:eve SELECT on other: there is no entry for this database, and none for *",
  ],
];
t.test("access check says allowed or denied, and why", async (t) => {
  const gatehouse = install(
    t,
    people + grant("ghost", "main", "Owner") + grant("github:eve", "main", "ReadOnly"),
  );
  const results = await gatehouse.runAll(answers.map(([question]) => `access check ${question}`));
  for (const [index, [question, code, answer]] of answers.entries()) {
    t.strictSame(results[index], { ...done(answer), code }, question);
  }
  const right = await gatehouse.run("access check root", undefined, "drop database", "main");
  t.match(right, { code: 0, stdout: /^allowed: root DROP DATABASE on main/ });
});

t.test("access check tells what to ask instead of a Batch", async (t) => {
  const { code, stderr } = await install(t).run("access check alice batch main");
  t.equal(code, 2);
  t.match(stderr, /a Batch needs what its elements need; ask for each of them/);
});

t.test("access check --json has the decision as data", async (t) => {
  const gatehouse = install(t);
  const { code, stdout } = await gatehouse.run("access check alice Insert other --json");
  t.equal(code, 1);
  t.match(JSON.parse(stdout), {
    username: "alice",
    permission: "INSERT",
    database: "other",
    allowed: false,
    reason: "role_insufficient",
    role: "ReadOnly",
    entry: "*",
  });
  const disabled = await gatehouse.run("access check bob Select main --json");
  t.equal(disabled.code, 1);
  t.match(JSON.parse(disabled.stdout), { allowed: false, explanation: "the user is disabled" });
  t.equal(JSON.parse(disabled.stdout).reason, "user_disabled");
});

t.test("access check knows the operations of the configuration", async (t) => {
  const gatehouse = install(t);
  const configuration = path.join(gatehouse.home, "gateway.toml");
  appendFileSync(configuration, '[query]\noperations = { Truncate = "DELETE" }\n');
  const result = await gatehouse.run("access check alice truncate main");
  t.match(result, { code: 0, stdout: /^allowed: alice DELETE on main/ });
  writeFileSync(configuration, "");
  t.equal((await gatehouse.run("access check alice truncate main")).code, 2);
});
