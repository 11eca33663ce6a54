// A minimal HTTP server that reads 100 parents and their children with two statements, for comparison.
// Arguments: the database URL, or a SQLite file, and the number of connections. Prints its port.
import { DatabaseSync } from "node:sqlite";
import mysql from "mysql2/promise";
import { Pool } from "pg";
import { serve } from "../serve.js";

const [, , url, connections] = process.argv;
const limit = Number(connections);
const parentsAfter = (value) =>
  `select id, name, total from parents where id > ${value} order by id limit 100`;
const childrenOf = (list) => `select parent_id, id, product, quantity from children
  where parent_id ${list} order by parent_id, id`;

function openPostgres() {
  const pool = new Pool({ connectionString: url, max: limit, options: "-c search_path=main" });
  const ask = async (text, values) => (await pool.query({ name: text, text, values })).rows;
  return {
    parents: (after) => ask(parentsAfter("$1"), [after]),
    children: (ids) => ask(childrenOf("= any($1::int[])"), [ids]),
  };
}

function openMysql() {
  const pool = mysql.createPool({ uri: `${url}main`, connectionLimit: limit });
  const ask = async (words, values) => (await pool.execute(words, values))[0];
  return {
    parents: (after) => ask(parentsAfter("?"), [after]),
    children: (ids) => ask(childrenOf(`in (${ids.map(() => "?")})`), ids),
  };
}

function openSqlite() {
  const database = new DatabaseSync(url, { readOnly: true });
  const parents = database.prepare(parentsAfter("?"));
  const children = database.prepare(childrenOf("in (select value from json_each(?))"));
  return {
    parents: (after) => parents.all(after),
    children: (ids) => children.all(JSON.stringify(ids)),
  };
}

const opened = { "postgres:": openPostgres, "postgresql:": openPostgres, "mysql:": openMysql };
const database = (opened[URL.parse(url)?.protocol] ?? openSqlite)();

async function answer({ Select }) {
  const data = await database.parents(Select.where.value);
  const byId = new Map(data.map((parent) => [parent.id, { ...parent, children: [] }]));
  for (const { parent_id, ...child } of await database.children([...byId.keys()])) {
    byId.get(parent_id).children.push(child);
  }
  return { status: "success", data: [...byId.values()] };
}

serve(answer, { port: 0, host: "127.0.0.1" }, ({ port }) => console.log(port));
