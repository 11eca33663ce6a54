import t, { type Test } from "tap";
import { openGatewaySetup } from "../gateway/kit.ts";

const column = { name: "id", type: "int", primary_key: true };
const bodies: Record<string, (database: string) => unknown> = {
  Select: (database) => ({ Select: { database, from: "t", columns: ["*"] } }),
  Insert: (database) => ({ Insert: { database, table: "t", values: [{ id: 1 }] } }),
  Update: (database) => ({ Update: { database, table: "t", set: { id: 2 }, where: null } }),
  Delete: (database) => ({ Delete: { database, table: "t", where: null } }),
  CreateTable: (database) => ({ CreateTable: { database, table: "t", columns: [column] } }),
  DropTable: (database) => ({ DropTable: { database, table: "t" } }),
  CreateDatabase: (database) => ({ CreateDatabase: { database } }),
  DropDatabase: (database) => ({ DropDatabase: { database } }),
};
const all = Object.keys(bodies);
const write = ["Select", "Insert", "Update", "Delete"];
const tables = [...write, "CreateTable", "DropTable"];

const table: Record<string, { main: string[]; other: string[] }> = {
  owner: { main: all, other: [] },
  dbadmin: { main: tables, other: [] },
  writer: { main: write, other: [] },
  reader: { main: ["Select"], other: [] },
  nobody: { main: [], other: [] },
  admin: { main: all, other: all },
};
const roles = { owner: "Owner", dbadmin: "DbAdmin", writer: "ReadWrite", reader: "ReadOnly" };

const { gateway, upstream } = await openGatewaySetup(t);

async function logInAll(): Promise<Map<string, string>> {
  const tokens = new Map([["admin", await gateway.login()]]);
  for (const [name, role] of Object.entries(roles)) {
    tokens.set(name, await gateway.addUser(name, role));
  }
  tokens.set("nobody", await gateway.addUser("nobody", "ReadOnly", "elsewhere"));
  return tokens;
}

async function ask(
  t: Test,
  question: { token: string; user: string; operation: string; database: string; allowed: boolean },
): Promise<void> {
  const { token, user, operation, database, allowed } = question;
  // White space and an escape, which would be lost unless the client's bytes are forwarded.
  const content = JSON.stringify(bodies[operation]?.(database), null, "\t").replace(
    '"t"',
    '"\\u0074"',
  );
  const answer = await gateway.query(content, token);
  const received = upstream.take();
  const name = `${user} ${operation} on ${database}`;
  if (allowed) {
    t.equal(answer.status, 200, `${name} is allowed`);
    t.equal(answer.headers.get("x-gatehouse-decision"), "allow");
    t.equal(received.length, 1, "the upstream received one request");
    t.equal(received[0]?.body.toString(), content, "byte for byte");
    t.equal(received[0]?.headers["x-gatehouse-user"], user);
    t.equal(received[0]?.headers["x-gatehouse-database"], database);
  } else {
    t.equal(answer.status, 403, `${name} is denied`);
    t.equal(answer.body.message, "Insufficient permissions for this operation");
    t.equal(answer.headers.get("x-gatehouse-decision"), "deny");
    t.equal(received.length, 0, "the upstream received nothing");
  }
}

t.test("every role has exactly its documented operations", async (t) => {
  const tokens = await logInAll();
  for (const [user, rights] of Object.entries(table)) {
    const token = tokens.get(user) ?? "";
    for (const operation of all) {
      for (const database of ["main", "other"] as const) {
        const allowed = rights[database].includes(operation);
        await ask(t, { token, user, operation, database, allowed });
      }
    }
  }
});

t.test("a Batch is allowed only if each of its elements is", async (t) => {
  const token = await gateway.addUser("batcher", "ReadWrite");
  const good = { Batch: [bodies.Select?.("main"), bodies.Insert?.("main")] };
  t.equal((await gateway.query(good, token)).status, 200);
  const [received] = upstream.take();
  t.equal(received?.body.toString(), JSON.stringify(good));
  t.equal(received?.headers["x-gatehouse-role"], "ReadWrite");

  const refused = [
    [bodies.Select?.("main"), bodies.DropTable?.("main")],
    [bodies.Select?.("main"), bodies.Select?.("other")],
    [bodies.Select?.("other"), bodies.Select?.("main")],
  ];
  for (const elements of refused) {
    const answer = await gateway.query({ Batch: elements }, token);
    t.match(answer, { status: 403, body: { code: "batch_member_denied" } });
  }
  t.equal(upstream.take().length, 0, "the upstream received nothing of them");
});

t.test("the upstream receives the role for each database of a Batch", async (t) => {
  const token = await gateway.addUser("carol", "ReadOnly");
  await gateway.edit(
    (text) => `${text}\n[[acl]]\nusername = "carol"\ndatabase = "logs"\nrole = "Owner"\n`,
  );
  await gateway.service.logged(({ msg }) => msg === "access file reloaded");
  await gateway.service.logged(({ grantsAdded }) => String(grantsAdded) === "carol logs Owner");
  const elements = ["logs", "main", "logs"].map((database) => bodies.Select?.(database));
  t.equal((await gateway.query({ Batch: elements }, token)).status, 200);
  const [received] = upstream.take();
  t.equal(received?.headers["x-gatehouse-database"], "logs,main");
  t.equal(received?.headers["x-gatehouse-role"], "Owner,ReadOnly");
});
