import t, { type Test } from "tap";
import { type Answer, createTable, insert, query, selectAll } from "../kit.ts";
import { startOn } from "../postgres/kit.ts";
import { startService } from "../postgres/service.ts";
import { freshMysql, sharedServer } from "./kit.ts";

async function scene(t: Test, ...statements: string[]) {
  const fresh = await freshMysql(t);
  const server = await sharedServer();
  await server.sql(...statements);
  return { ...fresh, server };
}

function refused(t: Test, answer: Answer, status: number, code: string): void {
  t.match(answer, { status, body: { status: "error", code } });
  t.notMatch(answer.text, /hunter2|insert into|select |\?/i, "no row and no SQL is told");
}

t.test("constraints of every kind are a 409 that names them and no value", async (t) => {
  const { ask } = await scene(
    t,
    `create table main.owners (name varchar(40) primary key, age int,
      constraint adult check (age > 0))`,
    `create table main.cats (name varchar(40) primary key, toy text not null, tag int unique,
      constraint owned foreign key (name) references main.owners (name))`,
    "create table main.dogs (name varchar(40))",
    `create trigger main.refuse before insert on main.dogs for each row
      signal sqlstate '45000' set message_text = 'no hunter2 here'`,
    "insert into main.owners values ('hunter2', 1)",
    "insert into main.cats values ('hunter2', 'ball', 1)",
  );
  const name = "hunter2";
  const remove = { Delete: { database: "main", table: "owners", where: null } };
  const broken: [object, RegExp][] = [
    [insert("owners", [{ name }]), /PRIMARY/],
    [insert("owners", [{ name: "' for key 'x" }, { name: "' for key 'x" }]), /PRIMARY/],
    [insert("owners", [{ name: "x", age: -1 }]), /adult/],
    [
      insert("cats", [{ name: "hunter2x", toy: "y" }]),
      /^Table owners has no row for name of cats \(foreign key owned\)$/,
    ],
    [insert("cats", [{ name, toy: null }]), /column "toy"/],
    [insert("cats", [{ name }]), /column "toy"/],
    [insert("dogs", [{ name }]), /trigger/],
    [remove, /^Rows of cats still refer to name \(foreign key owned\)$/],
    [{ DropTable: { database: "main", table: "owners" } }, /fit together|depends/],
  ];
  for (const [body, message] of broken) {
    const answer = await ask(body);
    refused(t, answer, 409, "constraint_violation");
    t.match(answer.body.message, message);
  }
});

t.test("a Batch that makes or drops a table is refused before anything is done", async (t) => {
  const { ask } = await freshMysql(t);
  await ask(createTable("rows", { id: "int" }));
  await ask(insert("rows", [{ id: 1 }]));
  const drop = { DropTable: { database: "main", table: "rows" } };
  const batches = [
    [insert("rows", [{ id: 2 }]), createTable("more", { id: "int" })],
    [drop, selectAll("rows")],
    [createTable("one", { id: "int" }), createTable("two", { id: "int" })],
  ];
  for (const Batch of batches) refused(t, await ask({ Batch }), 400, "batch_not_atomic");
  t.same((await ask(selectAll("rows"))).body.data, [{ id: 1 }]);
  for (const table of ["more", "one", "two"]) {
    t.match(await ask(selectAll(table)), { status: 404 }, table);
  }
  t.same((await ask({ Batch: [drop] })).body.data, ["Table rows dropped"]);
});

t.test("a table that could not take half of a query back is only read", async (t) => {
  const { ask } = await scene(
    t,
    "create table main.old (id bigint primary key) engine = MyISAM",
    "insert into main.old values (1)",
  );
  const rows = [{ id: 2 }, { id: 1 }];
  refused(t, await ask(insert("old", rows)), 403, "permission_denied");
  const remove = { Delete: { database: "main", table: "old", where: null } };
  refused(t, await ask(remove), 403, "permission_denied");
  t.same((await ask(selectAll("old"))).body.data, [{ id: 1 }]);
});

t.test("what the engine's own user may not do is a 403 of the engine", async (t) => {
  const { server } = await scene(
    t,
    "create table main.secrets (id bigint primary key)",
    "create database hidden",
    "create table hidden.rows (id bigint)",
    "create user reader@'127.0.0.1'",
    "grant select on main.* to reader@'127.0.0.1'",
  );
  t.teardown(() => server.sql("drop user reader@'127.0.0.1'"));
  const { address } = await startOn(t, server.url.replace("root@", "reader@"));
  t.match(await query(address, selectAll("secrets")), { status: 200 });
  for (const body of [
    insert("secrets", [{ id: 1 }]),
    createTable("mine", { id: "int" }),
    { DropTable: { database: "main", table: "secrets" } },
    { CreateDatabase: { database: "mine" } },
    { DropDatabase: { database: "main" } },
  ]) {
    refused(t, await query(address, body), 403, "permission_denied");
  }
  // What the user may not see is not there.
  refused(t, await query(address, selectAll("rows", {}, "hidden")), 404, "database_not_found");
});

t.test("a drop takes nothing along that queries could not make again", async (t) => {
  const { ask, server } = await scene(
    t,
    "create database other",
    "create table other.base (id bigint primary key)",
    "create table main.child (id bigint, foreign key (id) references other.base (id))",
    "create view main.seen as select * from other.base",
  );
  refused(t, await ask({ DropDatabase: { database: "other" } }), 409, "constraint_violation");
  refused(t, await ask({ DropDatabase: { database: "main" } }), 409, "constraint_violation");
  t.match(await ask(selectAll("base", {}, "other")), { status: 200 });
  refused(t, await ask({ DropTable: { database: "main", table: "seen" } }), 404, "table_not_found");
  await server.sql("drop view main.seen");
  t.match(await ask({ DropDatabase: { database: "main" } }), { status: 200 });
  t.match(await ask({ DropDatabase: { database: "other" } }), { status: 200 });
});

t.test("the databases of the server's own are none for a query", async (t) => {
  const { ask } = await freshMysql(t);
  for (const database of ["mysql", "information_schema", "performance_schema", "SYS"]) {
    refused(t, await ask(selectAll("user", {}, database)), 404, "database_not_found");
    refused(t, await ask({ DropDatabase: { database } }), 404, "database_not_found");
    refused(t, await ask({ CreateDatabase: { database } }), 400, "invalid_name");
  }
});

t.test("what MySQL could not keep of a name or a type is refused", async (t) => {
  const { ask } = await freshMysql(t);
  for (const name of ["x".repeat(65), "end ", "\u{1f600}"]) {
    refused(t, await ask(createTable("odd", { id: "int", [name]: "int" })), 400, "invalid_name");
  }
  const wide = { id: "int", a: "varchar(15000)", b: "varchar(15000)" };
  refused(t, await ask(createTable("wide", wide)), 400, "query_too_complex");
  refused(t, await ask(createTable("fine", { id: "numeric(70,2)" })), 400, "invalid_type");
  refused(t, await ask(createTable("keyed", { id: "varchar(1000)" })), 400, "invalid_type");
  refused(t, await ask(createTable("keyed", { id: "json" })), 400, "invalid_type");
});

t.test("neither a password nor a row gets into the log, whatever goes wrong", async (t) => {
  const { server } = await scene(
    t,
    "create table main.rows (id bigint primary key)",
    `create trigger main.fail before insert on main.rows for each row
      signal sqlstate '58000' set mysql_errno = 1105, message_text = 'hunter2'`,
    "create user ann@'127.0.0.1' identified by 'hunter2'",
    "grant all on main.* to ann@'127.0.0.1'",
  );
  const { service, address } = await startService(t, server.url.replace("root@", "ann:hunter2@"));
  refused(t, await query(address, insert("rows", [{ id: 4711 }])), 500, "internal_error");
  await service.logged(({ msg }) => msg === "a query failed");
  t.match(service.output, /1105/);
  t.notMatch(service.output, /hunter2|4711|insert into/i);
});
