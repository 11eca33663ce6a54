import t, { type Test } from "tap";
import { type Answer, createTable, insert, query, selectAll } from "../kit.ts";
import { freshPostgres, sharedServer, startOn } from "./kit.ts";
import { startService } from "./service.ts";

async function scene(t: Test, statements: string) {
  const fresh = await freshPostgres(t);
  const server = await sharedServer();
  const sql = (text: string) => server.sql(text, fresh.database);
  await sql(statements);
  return { ...fresh, server, sql };
}

function refused(t: Test, answer: Answer, status: number, code: string): void {
  t.match(answer, { status, body: { status: "error", code } });
  t.notMatch(answer.text, /hunter2|insert into|select |\$1/i, "no row and no SQL is told");
}

t.test("constraints of every kind are a 409 that names them and no value", async (t) => {
  const { ask } = await scene(
    t,
    `create table main.owners (name text primary key, age int check (age > 0));
    create table main.cats (name text primary key references main.owners, toy text not null);
    create function main.refuse() returns trigger language plpgsql as
      $$ begin raise exception 'no % here', new.name; end $$;
    create table main.dogs (name text);
    create trigger refuse before insert on main.dogs for each row execute function main.refuse();
    insert into main.owners values ('hunter2', 1);
    insert into main.cats values ('hunter2', 'ball')`,
  );
  const name = "hunter2";
  const remove = { Delete: { database: "main", table: "owners", where: null } };
  const broken: [object, RegExp][] = [
    [insert("owners", [{ name }]), /owners_pkey/],
    [insert("owners", [{ name: "x", age: -1 }]), /owners_age_check/],
    [insert("cats", [{ name: "other", toy: "y" }]), /cats_name_fkey/],
    [insert("cats", [{ name, toy: null }]), /column "toy"/],
    [insert("dogs", [{ name }]), /trigger/],
    [remove, /cats_name_fkey/],
    [{ DropTable: { database: "main", table: "owners" } }, /depends/],
    [{ DropDatabase: { database: "main" } }, /depends/],
  ];
  for (const [body, message] of broken) {
    const answer = await ask(body);
    refused(t, answer, 409, "constraint_violation");
    t.match(answer.body.message, message);
  }
});

t.test(
  "a foreign key names its tables and columns, and the value that the query holds",
  async (t) => {
    const { ask } = await scene(
      t,
      `create table main.customer (customer_id int primary key, name text);
    create table main.payment (id int primary key,
      customer_id int constraint paid references main.customer);
    insert into main.customer values (1, 'Ann'), (2, 'Bob');
    insert into main.payment values (1, 1), (2, 2)`,
    );
    const where = (column: string, value: unknown) => ({ column, cmp: "=", value });
    const remove = (condition: object) => ({
      Delete: { database: "main", table: "customer", where: condition },
    });
    const broken: [object, string][] = [
      [
        insert("payment", [{ id: 3, customer_id: 9 }]),
        "Table customer has no row for customer_id 9 of payment (foreign key paid)",
      ],
      [
        remove(where("customer_id", 1)),
        "Rows of payment still refer to customer_id 1 (foreign key paid)",
      ],
      // The query does not hold the value, so it may be one that the caller may not read.
      [
        remove(where("name", "Bob")),
        "Rows of payment still refer to customer_id (foreign key paid)",
      ],
      [
        { Batch: [remove(where("customer_id", 2))] },
        "Batch[0]: Rows of payment still refer to customer_id 2 (foreign key paid)",
      ],
    ];
    for (const [body, message] of broken) {
      t.match(await ask(body), { status: 409, body: { code: "constraint_violation", message } });
    }
  },
);

t.test("a wrong label of an enum names the column and the labels", async (t) => {
  const { ask, sql } = await scene(
    t,
    `create type main.mood as enum ('sad', 'ok, or so');
    create table main.people (id int primary key, mood main.mood)`,
  );
  const message = "does not take this string; allowed: sad, ok, or so";
  const wrong = insert("people", [{ id: 1, mood: "glad" }]);
  t.match((await ask(wrong)).body, {
    code: "invalid_value",
    message: `"mood" (main.mood) ${message}`,
  });
  const condition = { where: { column: "mood", cmp: "=", value: "glad" } };
  t.match((await ask(selectAll("people", condition))).body, {
    code: "invalid_value",
    message: /"mood" .*; allowed: sad, ok, or so/,
  });
  await sql("alter type main.mood add value 'glad'");
  t.match(await ask(wrong), { status: 200 }, "a new label is known at once");
  t.match((await ask(selectAll("people", condition))).body.data, [{ id: 1, mood: "glad" }]);
});

t.test("what the engine's own user may not do is a 403 of the engine", async (t) => {
  const { server, database, sql } = await scene(
    t,
    `create table main.secrets (id bigint primary key); create role reader login;
    create schema hidden; create table hidden.rows (id bigint);
    grant usage on schema main to reader; grant select on main.secrets to reader`,
  );
  t.teardown(() => sql("drop owned by reader; drop role reader"));
  const url = server.url(database).replace("gatehouse@", "reader@");
  const { address } = await startOn(t, url);
  t.match(await query(address, selectAll("secrets")), { status: 200 });
  for (const body of [
    insert("secrets", [{ id: 1 }]),
    createTable("mine", { id: "int" }),
    { DropTable: { database: "main", table: "secrets" } },
    selectAll("rows", {}, "hidden"),
    { CreateDatabase: { database: "mine" } },
  ]) {
    refused(t, await query(address, body), 403, "permission_denied");
  }
});

t.test("a drop of a database reaches into no other one", async (t) => {
  const { ask, sql } = await scene(
    t,
    `create schema other; create table other.base (id bigint primary key);
    create table main.child (id bigint references other.base);
    create view main.seen as select * from other.base`,
  );
  refused(t, await ask({ DropDatabase: { database: "other" } }), 409, "constraint_violation");
  t.match(await ask(selectAll("base", {}, "other")), { status: 200 });
  refused(t, await ask({ DropTable: { database: "main", table: "seen" } }), 404, "table_not_found");
  await sql("drop view main.seen");
  t.match(await ask({ DropDatabase: { database: "main" } }), { status: 200 });
  t.match(await ask({ DropDatabase: { database: "other" } }), { status: 200 });
});

t.test("the schemas of the server's own are no databases", async (t) => {
  const { ask } = await freshPostgres(t);
  for (const database of ["pg_catalog", "information_schema", "PG_catalog"]) {
    refused(t, await ask(selectAll("pg_authid", {}, database)), 404, "database_not_found");
    refused(t, await ask({ DropDatabase: { database } }), 404, "database_not_found");
    refused(t, await ask({ CreateDatabase: { database } }), 400, "invalid_name");
  }
});

t.test("names that PostgreSQL would cut off are refused", async (t) => {
  const { ask } = await freshPostgres(t);
  const columns = { id: "int", [`${"ä".repeat(31)}b`]: "int", [`${"ä".repeat(31)}bc`]: "int" };
  refused(t, await ask(createTable("long", columns)), 400, "invalid_name");
});

t.test("neither a password nor a row gets into the log, whatever goes wrong", async (t) => {
  const server = await sharedServer();
  const database = await server.createDatabase();
  await server.sql(
    `create schema main; create table main.rows (id bigint primary key);
    create function main.fail() returns trigger language plpgsql as
      $$ begin raise exception 'hunter2 %', new.id using errcode = 'XX000', detail = 'hunter2'; end $$;
    create trigger fail before insert on main.rows for each row execute function main.fail()`,
    database,
  );
  const url = server.url(database).replace("gatehouse@", "gatehouse:hunter2@");
  const { service, address } = await startService(t, url);
  refused(t, await query(address, insert("rows", [{ id: 4711 }])), 500, "internal_error");
  await service.logged(({ msg }) => msg === "a query failed");
  t.match(service.output, /XX000/);
  t.notMatch(service.output, /hunter2|4711|insert into/i);
});
