/** Rows within rows, and Selects of Selects. */
import { createTable, insert } from "./kit.ts";
import { overEach, type Scene } from "./over-each.ts";

type Ask = Scene["ask"];

async function fill(ask: Ask): Promise<void> {
  await ask(createTable("staff", { id: "int", name: "text", boss: "int" }));
  await ask(createTable("rentals", { id: "int", staff_id: "int", film: "text", price: "int" }));
  await ask(createTable("films", { name: "text", year: "int" }));
  await ask(createTable("payments", { id: "int", rental_id: "int", paid: "int" }));
  await ask(
    insert("staff", [
      { id: 1, name: "Ann", boss: null },
      { id: 2, name: "Bob", boss: 1 },
      { id: 3, name: "Cid", boss: 1 },
    ]),
  );
  await ask(
    insert("rentals", [
      { id: 10, staff_id: 1, film: "A", price: 1 },
      { id: 11, staff_id: 1, film: "B", price: 2 },
      { id: 12, staff_id: 2, film: "A", price: 3 },
      { id: 13, staff_id: null, film: "C", price: null },
    ]),
  );
  await ask(
    insert("films", [
      { name: "A", year: 1990 },
      { name: "B", year: 2000 },
    ]),
  );
  const paid = [10, 10, 11, 12].map((rental_id, at) => ({ id: at + 1, rental_id, paid: at * 5 }));
  await ask(insert("payments", paid));
}

const byId = { order_by: { column: "id" } };
const ofStaff = { as: "rentals", table: "rentals", on: "rentals.staff_id = staff.id" };
const ofRental = { as: "payments", table: "payments", on: "payments.rental_id = rentals.id" };
const film = { as: "film", table: "films", on: "films.name = rentals.film", one: true };

/** The rows' text. */
async function rowsOf(ask: Ask, query: object): Promise<string> {
  const { text } = await ask({ Select: { database: "main", ...query } });
  return text.replace('{"status":"success","data":[', "").replace(/\]\}$/, "");
}

const staff = { from: "staff", columns: ["name"], ...byId };

overEach("rows include rows of other tables, at three levels", async (t, { ask }) => {
  await fill(ask);
  const lines = { ...ofStaff, columns: ["id"], ...byId };
  const read = (...include: object[]) => rowsOf(ask, { ...staff, include });
  t.equal(
    await read(lines),
    '{"name":"Ann","rentals":[{"id":10},{"id":11}]},{"name":"Bob","rentals":[{"id":12}]},{"name":"Cid","rentals":[]}',
  );
  t.equal(
    await read({ ...lines, limit: 1 }),
    '{"name":"Ann","rentals":[{"id":10}],"rentals_more":true},{"name":"Bob","rentals":[{"id":12}]},{"name":"Cid","rentals":[]}',
  );
  t.equal(
    await read({ ...lines, limit: 0 }),
    '{"name":"Ann","rentals":[],"rentals_more":true},{"name":"Bob","rentals":[],"rentals_more":true},{"name":"Cid","rentals":[]}',
  );
  const last = { ...lines, as: "last", order_by: { column: "id", direction: "DESC" }, one: true };
  t.equal(
    await read(last, { ...lines, limit: 2 }),
    '{"name":"Ann","last":{"id":11},"rentals":[{"id":10},{"id":11}]},{"name":"Bob","last":{"id":12},"rentals":[{"id":12}]},{"name":"Cid","last":null,"rentals":[]}',
  );
  const payments = { ...ofRental, columns: ["paid"], ...byId, limit: 1 };
  const films = { ...film, columns: ["year"] };
  t.equal(
    await read({ ...lines, include: [payments, films] }),
    '{"name":"Ann","rentals":[{"id":10,"payments":[{"paid":0}],"payments_more":true,"film":{"year":1990}},{"id":11,"payments":[{"paid":10}],"film":{"year":2000}}]},{"name":"Bob","rentals":[{"id":12,"payments":[{"paid":15}],"film":{"year":1990}}]},{"name":"Cid","rentals":[]}',
  );
});
