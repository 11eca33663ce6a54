import { readFileSync, writeFileSync } from "node:fs";
import t from "tap";
import { grant } from "../access/kit.ts";
import { openGatewaySetup } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

const insert = { Insert: { database: "main", table: "t", values: [{ id: 1 }] } };

function untilAnswered(gateway: TestGateway, token: string, status: number): Promise<void> {
  return eventually(`a query is ${status}`, async () => {
    return (await gateway.query(insert, token)).status === status;
  });
}

function setRole(role: string): (text: string) => string {
  return (text) =>
    text.replace(/(username = "alice"\ndatabase = "main"\nrole = )"\w+"/, `$1"${role}"`);
}

const { gateway, upstream } = await openGatewaySetup(t);

t.test("a role that is changed in the file is in force within a second", async (t) => {
  const token = await gateway.addUser("alice", "ReadOnly");
  t.equal((await gateway.query(insert, token)).status, 403);

  const isLate = ({ times }: { times: number[] }) => !(Math.min(...times) < 1000);
  const turns = [
    { role: "ReadWrite", status: 200, times: [] as number[] },
    { role: "ReadOnly", status: 403, times: [] as number[] },
  ];
  // Other load on the machine only adds time.
  for (let round = 0; round < 30 && turns.some(isLate); round++) {
    for (const { role, status, times } of turns) {
      const start = performance.now();
      const text = setRole(role)(readFileSync(gateway.accessFile, "utf8"));
      writeFileSync(gateway.accessFile, text);
      await untilAnswered(gateway, token, status);
      times.push(performance.now() - start);
    }
  }
  for (const { role, times } of turns) t.ok(Math.min(...times) < 1000, `${role} after ${times}`);
  upstream.take();
  t.equal((await gateway.query(insert, token)).status, 403);
  t.equal(upstream.take().length, 0);
});

t.test("an invalid access file is reported and changes nothing", async (t) => {
  const token = await gateway.addUser("bob", "ReadWrite");
  await gateway.edit((text) => text.replace('role = "ReadWrite"', 'role = "Writer"'));
  const refused = await gateway.service.logged(({ msg }) => String(msg).includes("refused"));
  t.match(refused, { line: Number, reason: /`role` must be one of Owner, DbAdmin/ });
  t.equal((await gateway.query(insert, token)).status, 200, "the last good state is in force");
  const ready = await gateway.request("/readyz");
  t.equal(ready.status, 200);
  t.equal(ready.body.access_file, "stale");

  await gateway.edit((text) => text.replace('role = "Writer"', 'role = "ReadOnly"'));
  await untilAnswered(gateway, token, 403);
  t.equal((await gateway.request("/readyz")).body.access_file, "fresh");
});

t.test("a token of a user disabled during a downtime stays revoked", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const before = await startGateway(t, { upstream: upstream.url });
  const { home, service } = before;
  const token = await before.addUser("alice", "ReadWrite");
  const original = readFileSync(before.accessFile, "utf8");
  await service.stop();
  await before.edit((text) => text.replace('username = "alice"\n', "$&disabled = true\n"));
  const gateway = await startGateway(t, { home, upstream: upstream.url });
  const messageIs = (message: string) =>
    eventually(message, async () => {
      return (await gateway.query(insert, token)).body.message === message;
    });
  await messageIs("Token revoked");
  await gateway.edit((text) => text.replace(/\[\[users\]\]\nusername = "alice"\n[^[]*/, ""));
  await messageIs("User not found");
  await gateway.edit(() => original);
  await messageIs("Token revoked");
  const account = { username: "alice", password: "alice password" };
  await eventually("alice can log in again", async () => {
    return (await gateway.send("POST", "/login", account)).status === 200;
  });
  t.equal((await gateway.query(insert, token)).body.message, "Token revoked");
});

t.test("a reload warns which users lose a database to a name in another case", async (t) => {
  const gateway = await startGateway(t, { config: '[audit]\nfile = "audit.log"\n' });
  const added = grant("robot", "MAIN", "ReadOnly");
  await gateway.edit((text) => `${text}\n${added}`);
  const warning = await gateway.service.logged(({ msg }) =>
    String(msg).includes("a different case"),
  );
  t.match(warning, { named: "MAIN", database: "main", users: ["admin"] });
});
