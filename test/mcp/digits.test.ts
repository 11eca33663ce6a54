import t from "tap";
import { freshMysql } from "../engine/mysql/kit.ts";
import { freshPostgres } from "../engine/postgres/kit.ts";
import { ask } from "../kit/client.ts";
import { openEmbedded } from "./kit.ts";
import { statelessCall } from "./messages.ts";

const columns = [
  { name: "id", type: "bigint", primary_key: true },
  { name: "note", type: "json" },
];

t.test("integers of 64 bits keep their digits on the way in and out", async (t) => {
  const { endpoint, ask: query } = await openEmbedded(t, { grants: { alice: { main: "Owner" } } });
  await query({ CreateTable: { database: "main", table: "big", columns } });
  const insert = statelessCall("tools/call", {
    name: "insert",
    arguments: { database: "main", table: "big", values: [{ id: "ID", note: "NOTE" }] },
  });
  const body = insert.body
    .replace('"ID"', "-9223372036854775808")
    .replace('"NOTE"', '{"n":9007199254740993}');
  const inserted = await ask(endpoint.url, { ...insert, body });
  t.notMatch(inserted.body.toString(), "isError", inserted.body.toString());
  const select = { Select: { database: "main", from: "big", columns: ["*"] } };
  t.match((await query(select)).text, '"id":-9223372036854775808,"note":{"n":9007199254740993}');

  const read = statelessCall("tools/call", {
    name: "select",
    arguments: { database: "main", from: "big", columns: ["*"] },
  });
  const answer = JSON.parse((await ask(endpoint.url, read)).body.toString());
  t.same(answer.result.structuredContent, {
    rows: [{ id: "-9223372036854775808", note: { n: "9007199254740993" } }],
    truncated: false,
  });

  const [row] = answer.result.structuredContent.rows;
  const where = { column: "id", cmp: "=", value: row.id };
  const table = { database: "main", table: "big" };
  const change = async (name: string, args: object): Promise<void> => {
    const call = statelessCall("tools/call", { name, arguments: { ...table, ...args } });
    const { body } = await ask(endpoint.url, call);
    t.notMatch(body.toString(), "isError", body.toString());
  };
  await change("insert", { values: [{ id: "-9223372036854775807", note: 1 }] });
  await change("update", { set: { id: "9007199254740993" }, where });
  t.match((await query(select)).text, '"id":9007199254740993,"note":{"n":9007199254740993}');
  await change("delete", { where: { ...where, value: "9007199254740993" } });
  t.match(
    (await query(select)).text,
    '"data":[{"id":-9223372036854775807,"note":1}]',
    "what was given out is taken back, and no other row is meant",
  );
});

for (const [database, fresh] of Object.entries({ PostgreSQL: freshPostgres, MySQL: freshMysql })) {
  t.test(`every tool answers decimals with all of their digits (${database})`, async (t) => {
    const { endpoint, ask: query } = await openEmbedded(t, {
      grants: { alice: { main: "Owner" } },
      fresh,
    });
    const table = { database: "main", table: "prices" };
    const amount = "12345678901234567.8901234567";
    const definitions = [
      { name: "id", type: "int", primary_key: true },
      { name: "amount", type: "numeric(30,10)" },
    ];
    await query({ CreateTable: { ...table, columns: definitions } });
    const insert = JSON.stringify({ Insert: { ...table, values: [{ id: 1, amount: "AMOUNT" }] } });
    await query(insert.replace('"AMOUNT"', amount));
    const where = { column: "id", cmp: "=", value: 1 };
    const returning = ["amount"];
    const change = { ...table, set: { id: 1 }, where, returning };
    const select = { database: "main", from: "prices", columns: ["amount"] };
    const calls = {
      select,
      update: change,
      preview: { Update: { ...table, set: { id: 1 }, where } },
      batch: { operations: [{ Select: select }, { Update: change }] },
      delete: { ...table, where, returning },
    };
    for (const [name, args] of Object.entries(calls)) {
      const call = statelessCall("tools/call", { name, arguments: args });
      const body = (await ask(endpoint.url, call)).body.toString();
      const text = JSON.parse(body).result.content[0].text;
      t.match(text, amount, `the text of ${name}`);
      t.match(body, `"structuredContent":${text}`, `the structured content of ${name}`);
    }
  });
}
