import t from "tap";
import { freshMysql } from "./mysql/kit.ts";
import { overEach } from "./over-each.ts";
import { freshPostgres } from "./postgres/kit.ts";

const place = { database: "main", table: "prices" };

overEach("a decimal may be sent as a string, exactly", async (t, { ask }) => {
  const columns = [
    { name: "id", type: "int", primary_key: true },
    { name: "price", type: "decimal(20,4)" },
    { name: "label", type: "text", nullable: true },
  ];
  t.equal((await ask({ CreateTable: { ...place, columns } })).status, 200);
  const values = [
    { id: 1, price: "12.50" },
    { id: 2, price: "-0.1", label: "12.50" },
    { id: 3, price: 12.5 },
    { id: 4, price: "7" },
  ];
  t.match(await ask({ Insert: { ...place, values } }), { status: 200, body: { affected: 4 } });
  const ids = async (more: object) => {
    const { status, body, text } = await ask({
      Select: {
        ...{ database: "main", from: "prices", columns: ["id"] },
        ...{ order_by: [{ column: "price" }, { column: "id" }], ...more },
      },
    });
    t.equal(status, 200, text);
    return JSON.stringify(body.data);
  };
  const rows = (...all: number[]) => JSON.stringify(all.map((id) => ({ id })));
  const where = (column: string, cmp: string, value: unknown) => ({
    where: { column, cmp, value },
  });
  t.equal(await ids(where("price", "=", "12.5000")), rows(1, 3));
  t.equal(await ids(where("price", "IN", ["7.0", "-0.10"])), rows(2, 4));
  t.equal(await ids(where("price", "BETWEEN", ["0", "7.0001"])), rows(4));
  t.equal(await ids(where("label", "=", "12.50")), rows(2), "a text stays a text");
  t.equal(await ids({ after: ["7.00", 4], limit: 5 }), rows(1, 3));
  const change = (id: number, more: object) =>
    ask({ Update: { ...place, ...more, where: { column: "id", cmp: "=", value: id } } });
  t.equal((await change(4, { set: { price: "3.25" } })).status, 200);
  t.equal((await change(1, { set: { price: "13.0" } })).status, 200);
  t.equal((await change(1, { add: { price: "-0.50" } })).status, 200);
  t.equal(await ids(where("price", "=", "12.5")), rows(1, 3));
  t.equal((await change(1, { add: { price: "0.50" } })).status, 200);
  t.match(await change(1, { add: { label: "0.50" } }), {
    status: 400,
    body: { code: "invalid_value" },
  });
  t.match(await change(1, { add: { id: "0.50" } }), {
    status: 400,
    body: { code: "invalid_value" },
  });
  const upsert = { values: [{ id: 3, price: "99.75" }], on_conflict: ["id"], update: ["price"] };
  t.equal((await ask({ Upsert: { ...place, ...upsert } })).status, 200);
  t.equal(await ids(where("price", "IN", ["3.25", "13", "99.75"])), rows(4, 1, 3));
  for (const price of ["", "1e2", " 1", "1,5", "0x1", "01", "abc"]) {
    t.match(
      await change(1, { set: { price } }),
      { status: 400, body: { code: "invalid_value" } },
      price,
    );
  }
});

const remote = { PostgreSQL: freshPostgres, MySQL: freshMysql };

// SQLite keeps decimals as doubles.
for (const [name, fresh] of Object.entries(remote)) {
  t.test(`long decimals keep their digits, sent as strings (${name})`, async (t) => {
    const { ask } = await fresh(t);
    const columns = [
      { name: "id", type: "int", primary_key: true },
      { name: "price", type: "decimal(30,10)" },
    ];
    await ask({ CreateTable: { ...place, columns } });
    const price = "12345678901234567890.0123456789";
    const insert = (id: number, price: string) =>
      ask({ Insert: { ...place, values: [{ id, price }] } });
    t.equal((await insert(1, price)).status, 200);
    const where = { column: "price", cmp: "=", value: price };
    const select = { database: "main", from: "prices", columns: ["price"], where };
    t.match((await ask({ Select: select })).text, price);
    const add = { Update: { ...place, add: { price: "0.0000000001" }, where: null } };
    t.equal((await ask(add)).status, 200);
    t.match((await ask({ Select: { ...select, where: null } })).text, "1234567890.0123456790}");
    t.equal((await insert(2, "0.00000000001")).status, 400, "nothing is rounded");
    t.match(await insert(2, `9${price}`), { status: 400, body: { code: "number_out_of_range" } });
  });
}
