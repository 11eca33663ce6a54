import t from "tap";
import { openNarrowed, soon } from "./narrowed.ts";
import { putInForce, textOf, tokenOf } from "./staff.ts";

const { gateway, original, put, remove } = await openNarrowed(t);

const insufficient = "role_insufficient";
type Rule = [rule: string, caller: string, request: string, expected: number | string];

const column = JSON.stringify({ role: "ReadOnly", columns: ["id"] });

const rules: Rule[] = [
  ["a DbAdmin narrows what is below it", "dora", `PUT rita/main ${column}`, 200],
  ["and gives for a table", "dora", `PUT rita/main/t ${column}`, 200],
  ["and takes such an entry away", "dora", "DELETE tom/main/tickets", 200],
  ["it narrows no equal", "dora", `PUT tina/main ${column}`, insufficient],
  ["nor for a table", "dora", `PUT tina/main/t ${column}`, insufficient],
  ["nor changes the table of an equal", "dora", `PUT tina/main/secrets ${column}`, insufficient],
  ["nor removes it, behind which is more", "dora", "DELETE tina/main/secrets", insufficient],
  ["nor what is above it, for a time", "dora", `PUT tess/main ${column}`, insufficient],
  ["nor removes that", "dora", "DELETE tess/main", insufficient],
  [
    "it gives no Owner for a time",
    "dora",
    `PUT rita/main {"role":"Owner","expires":"${soon}"}`,
    insufficient,
  ],
  ["it gives nothing on *, not for a table either", "dora", `PUT rita/*/t ${column}`, "no_grant"],
  ["it gives its own up, and narrows it not", "dora", `PUT dora/main ${column}`, insufficient],
  ["an Owner removes the entry of a DbAdmin", "olga", "DELETE tina/main/secrets", 200],
  ["an Owner changes no other Owner", "olga", `PUT hank/main ${column}`, insufficient],
  ["an administrator does", "root", `PUT hank/main ${column}`, 200],
  [
    "a holder of columns does not widen them",
    "tom",
    `PUT tom/main/tickets {"role":"ReadWrite","max_rows":9}`,
    insufficient,
  ],
  ["nor removes the entry", "tom", "DELETE tom/main/tickets", insufficient],
  ["nor gives up None", "tom", "DELETE tom/*/audit_*", insufficient],
  ["who has an entry for a table grants nothing", "tina", `PUT rita/main ${column}`, insufficient],
  ["nor to itself", "tina", `PUT tina/main/secrets {"role":"ReadWrite"}`, insufficient],
  ["nor removes it", "tina", "DELETE tina/main/secrets", insufficient],
  ["who is Owner for a time grants nothing", "tess", `PUT rita/main ${column}`, insufficient],
  ["nor makes it last", "tess", `PUT tess/main {"role":"Owner","max_rows":1}`, "invalid_entry"],
  ["nor that", "tess", 'PUT tess/main {"role":"Owner","approvers":["root"]}', insufficient],
  [
    "an Owner who is asked for approval grants nothing",
    "hank",
    'PUT rita/main {"role":"ReadWrite"}',
    insufficient,
  ],
  ["who may write does not narrow others", "wim", `PUT rita/main ${column}`, insufficient],
  [
    "a wider role for a time is given by who may",
    "wim",
    `PUT wim/main {"role":"Owner","expires":"${soon}"}`,
    insufficient,
  ],
];

t.test("narrowed entries are given, changed and removed by who may", async (t) => {
  const tokens = new Map<string, string>();
  for (const [rule, caller, request, expected] of rules) {
    const token = tokens.get(caller) ?? (await tokenOf(gateway, caller));
    tokens.set(caller, token);
    const [method = "", place = "", body] = request.split(" ");
    const answer = method === "PUT" ? await put(place, body, token) : await remove(place, token);
    t.equal(
      expected === 200 ? answer.status : answer.body.code,
      expected,
      `${rule}: ${answer.text}`,
    );
    if (expected === 200) await putInForce(gateway, original);
    else t.equal(textOf(gateway), original, "nothing was written");
  }
});
