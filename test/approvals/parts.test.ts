/** Unit tests of keys and approvers. */

import { mkdirSync, statSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { readHolder } from "../../src/core/access/grant.ts";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { seal, unseal } from "../../src/core/base/sealed-bytes.ts";
import { mayApprove } from "../../src/features/approvals/approval.ts";
import { openBodyKey } from "../../src/features/approvals/approval-file.ts";
import { grant, snapshotOf, user } from "../access/kit.ts";
import { temporaryHome } from "../kit/gateway.ts";

t.test("processes create one key, which decrypts a query only under its id", async (t) => {
  const directory = path.join(temporaryHome(t), "made");
  mkdirSync(directory);
  const file = path.join(directory, "approvals.key");
  const [one, other] = await Promise.all([openBodyKey(file), openBodyKey(file)]);
  t.equal(statSync(file).mode & 0o777, 0o600);
  const body = Buffer.from('{"Delete":{}}');
  const sealed = seal(one, body, "a");
  t.strictSame(unseal(other, sealed, "a"), body);
  t.not(seal(one, body, "a").toString("hex"), sealed.toString("hex"));
  t.throws(() => unseal(other, sealed, "b"), "for another id");
  for (const at of [0, 13, sealed.length - 1]) {
    const changed = Buffer.from(sealed);
    changed[at] = (changed[at] ?? 0) ^ 1;
    t.throws(() => unseal(other, changed, "a"), `byte ${at}`);
  }
  const strange = await openBodyKey(path.join(directory, "other.key"));
  t.throws(() => unseal(strange, sealed, "a"), "by another key");
});

const snapshot = snapshotOf(
  "ann * Owner",
  "dora main DbAdmin",
  "wim main ReadWrite",
  "bot main Owner",
);
const rule = { database: "main", permissions: ["DELETE" as const] };
const named = { ...rule, approvers: ["wim", "bot", "gone"].map(readHolder) };
const who: [name: string, rules: (typeof rule)[], may: boolean][] = [
  ["ann", [rule], true],
  ["dora", [rule], true],
  ["dora", [{ ...rule, database: "side" }], false],
  ["dora", [rule, { ...rule, database: "side" }], false],
  ["wim", [rule], false],
  ["wim", [named], true],
  ["wim", [named, rule], false],
  ["ann", [named], false],
  ["gone", [named], false],
  ["bot", [rule], false],
  ["bot", [named], false],
];

t.test("approvers are the named users, else those who may grant, never the requester", (t) => {
  for (const [name, rules, may] of who) {
    const author = { kind: "console", name } as const;
    t.equal(mayApprove(snapshot, author, { username: "bot", rules }), may, `${name} ${may}`);
  }
  t.ok(mayApprove(snapshot, { kind: "cli", name: "x" }, { username: "bot", rules: [named] }));
  t.end();
});

t.test("a person with several names approves no query of one under another", async (t) => {
  const people = [
    user("ann", 'same_as = "staff:ann"'),
    user("ann2", 'same_as = "staff:ann"'),
    user("staff:late", 'same_as = "ann2"'),
    user("bea", 'same_as = "staff:bea"'),
    user("dora", ""),
  ];
  const names = ["ann", "ann2", "staff:ann", "staff:late"];
  const others = ["bea", "staff:bea", "dora", "staff:x"];
  const acl = [...names, ...others].map((name) => grant(name, "*", "Owner"));
  const text = [...people, ...acl].join("");
  const may = (name: string, username: string) =>
    mayApprove(
      parseAccessFile(text, "access.toml"),
      { kind: "console", name },
      { username, rules: [{ ...rule, approvers: [readHolder(name)] }, rule] },
    );
  for (const username of names) {
    for (const name of names) t.notOk(may(name, username), `${name} for ${username}`);
    for (const name of others) t.ok(may(name, username), `${name} for ${username}`);
  }
  t.notOk(may("staff:bea", "bea"));
  t.notOk(may("bea", "staff:bea"));
  t.ok(may("staff:ann", "bea"));
});
