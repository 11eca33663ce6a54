// A minimal HTTP server over `pg` with prepared statements and without checks: what Node itself costs.
// Arguments: the database URL and the number of connections. Prints its port.
import { Pool } from "pg";
import { serve } from "../serve.js";

const [, , url, connections] = process.argv;
const pool = new Pool({ connectionString: url, max: Number(connections) });

async function ask(name, statement, values) {
  return (await pool.query({ name, text: statement, values })).rows;
}

const list = ({ where, limit }) =>
  ask(
    "list",
    `select id, customer_id, region, status, ordered_on::text, total from main.orders
      where status = $1 order by id limit $2`,
    [where.value, limit],
  );

const summary = ({ where }) =>
  ask(
    "summary",
    `select status, count(*)::int, sum(total)::int from main.orders where region = $1
      group by status order by status`,
    [where.value],
  );

async function nested({ where, limit }) {
  const orders = await ask(
    "orders",
    `select id, status, ordered_on::text, total from main.orders
      where customer_id = $1 order by id limit $2`,
    [where.value, limit],
  );
  const byId = new Map(orders.map((order) => [order.id, { ...order, lines: [] }]));
  const lines = await ask(
    "lines",
    `select order_id, position, product, quantity, unit_price from main.order_lines
      where order_id = any($1::int[]) order by order_id, id`,
    [[...byId.keys()]],
  );
  for (const { order_id, ...line } of lines) byId.get(order_id).lines.push(line);
  return [...byId.values()];
}

function read({ Select }) {
  if (Select.include !== undefined) return nested(Select);
  return Select.aggregate === undefined ? list(Select) : summary(Select);
}

async function answer(query) {
  return { status: "success", data: await read(query) };
}

serve(answer, { port: 0, host: "127.0.0.1" }, ({ port }) => console.log(port));
