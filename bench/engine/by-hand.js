// A minimal HTTP server with `pg` that reads and inserts by primary key, for comparison.
// Arguments: the database URL and the path of a Unix socket. Prints "ready".
import { Pool } from "pg";
import { serve } from "../serve.js";

const [, , url, address] = process.argv;
const pool = new Pool({ connectionString: url, max: 16 });

async function answer({ Select, Insert, Batch }) {
  if (Batch !== undefined) return { status: "success", data: await insertAll(Batch) };
  if (Select !== undefined) {
    const words = "select id, name, email from main.users where id = $1";
    const { rows } = await pool.query(words, [Select.where.value]);
    return { status: "success", data: rows };
  }
  const affected = await insert(pool, Insert);
  return { status: "success", message: "Inserted 1 row", affected };
}

async function insert(through, { values }) {
  const [{ id, name, email }] = values;
  const words = "insert into main.users (id, name, email) values ($1, $2, $3)";
  return (await through.query(words, [id, name, email])).rowCount;
}

async function insertAll(elements) {
  const client = await pool.connect();
  try {
    await client.query("begin isolation level serializable");
    for (const { Insert } of elements) await insert(client, Insert);
    await client.query("commit");
    return elements.map(() => "Inserted 1 row");
  } finally {
    client.release();
  }
}

serve(answer, { path: address }, () => console.log("ready"));
