/** A value that is too long to be read fails its query alone, whatever the driver would do. */
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import t, { type Test } from "tap";
import { guardReading } from "../../src/engine/remote/reading.ts";
import { caseCount, nightly, sampled } from "../kit/nightly.ts";
import { createTable, databaseFiles, freshEngine, insert, refusal, rowsAs } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import type { Scene } from "./over-each.ts";
import { freshPostgres, startOn } from "./postgres/kit.ts";

const database = "main";
const MIB = 1024 * 1024;
const READABLE = 20 * MIB;
const tooLong = refusal(400, "query_too_complex");

/** @param lengthen makes the word of the first row as long */
async function prove(
  t: Test,
  { engine, ask }: Scene,
  lengthen: (bytes: number) => Promise<unknown>,
): Promise<void> {
  await ask(createTable("texts", { id: "int", word: "text", n: "int" }));
  await ask(
    insert(
      "texts",
      [1, 2].map((id) => ({ id, word: `word ${id}`, n: 0 })),
    ),
  );
  const select = (columns: readonly string[], more: object = {}) => ({
    Select: { database, from: "texts", columns, order_by: { column: "id" }, ...more },
  });
  const word = select(["word"]);
  await lengthen(READABLE);
  const readable = await ask(word);
  t.equal(readable.status, 200);
  t.ok(readable.text.length > READABLE);

  await lengthen(70 * MIB);
  const where = { column: "id", cmp: "=", value: 1 };
  const include = [{ as: "same", table: "texts", on: "texts.id = t.id", columns: ["word"] }];
  const from = { table: "texts", as: "t" };
  const changed = { database, table: "texts", set: { n: 1 }, where, returning: ["word"] };
  const bodies = [
    word,
    { Batch: [{ Update: { database, table: "texts", set: { n: 1 }, where } }, word] },
    { Update: changed },
    { Preview: { Update: { ...changed, returning: ["word"] } } },
    { Select: { database, from, columns: ["t.id"], order_by: { column: "t.id" }, include } },
    select(["word"], { distinct: true, limit: 1, order_by: { column: "word", direction: "DESC" } }),
  ];
  for (const body of sampled(bodies, 2)) {
    const others = select(["id", "n"]);
    const [answer, other] = await Promise.all([ask(body), ask(others)]);
    t.match(answer, tooLong, JSON.stringify(body));
    const rows = [1, 2].map((id) => ({ id, n: 0 }));
    t.match(other, { status: 200, body: { data: rows } }, "other queries are answered");
  }
  const stream = await rowsAs(engine.address, word, "application/x-ndjson");
  t.equal(stream.status, 400);
  t.match(stream.text, /query_too_complex/);
  const second = select(["word"], { where: { ...where, value: 2 } });
  t.match(await ask(second), { status: 200, body: { data: [{ word: "word 2" }] } });
  await lengthen(10);
  t.match(await ask(word), { status: 200 });
}

t.test("a value that is too long fails its query alone (SQLite)", async (t) => {
  const { engine, ask, directory } = await freshEngine(t);
  await prove(t, { engine, ask }, async (bytes) => {
    const [name = ""] = databaseFiles(directory);
    const file = new DatabaseSync(join(directory, "data", name));
    file.exec(
      `update texts set word = replace(hex(zeroblob(${bytes / 2})), '0', 'x') where id = 1`,
    );
    file.close();
  });
});

t.test("a value that is too long fails its query alone (PostgreSQL)", async (t) => {
  const { sql, ...scene } = await freshPostgres(t);
  await prove(t, scene, (bytes) =>
    sql(`update main.texts set word = repeat('x', ${bytes}) where id = 1`),
  );
  // At night, longer than the longest string of the process.
  const length = caseCount(70_000_000, 600_000_000);
  await sql(`update main.texts set word = repeat('x', ${length}) where id = 1`);
  const whole = { Select: { database, from: "texts", columns: ["*"] } };
  t.match(await scene.ask(whole), tooLong);
  await sql(`alter table main.texts add raw bytea`);
  await sql(`update main.texts set word = '', raw = convert_to(repeat('x', 40000000), 'UTF8')`);
  const raw = { Select: { database, from: "texts", columns: ["raw"] } };
  t.match(await scene.ask(raw), tooLong, "as the server writes it");
  t.match(await scene.ask({ Select: { database, from: "texts", columns: ["n"] } }), {
    status: 200,
  });
});

t.test("a value that is too long fails its query alone (MySQL)", nightly, async (t) => {
  const { sql, ...scene } = await freshMysql(t);
  await sql(`set global max_allowed_packet = ${512 * MIB}`);
  await prove(t, scene, (bytes) =>
    sql(`update main.texts set word = repeat('x', ${bytes}) where id = 1`, "select 1"),
  );
});

t.test("a server that the driver does not understand ends no process", async (t) => {
  // "AuthenticationGSS" makes the driver of PostgreSQL throw while it reads.
  const message = Buffer.from("R\0\0\0\x08\0\0\0\x07", "latin1");
  const server = createServer((client) => {
    client.on("error", () => {});
    client.once("data", () => client.write(message));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  const address = server.address() as AddressInfo;
  const engine = await startOn(
    t,
    `postgres://me:word@127.0.0.1:${address.port}/db?sslmode=disable`,
  );
  t.ok(engine.address);
});

t.test("messages are followed through chunks of any size", async (t) => {
  const framing = {
    headerBytes: 4,
    lengthAt: (bytes: Buffer, at: number) => bytes.readUIntLE(at, 3),
    goesOn: (length: number) => length === 0xffffff,
  };
  const packet = (length: number) => {
    const bytes = Buffer.alloc(4 + length);
    bytes.writeUIntLE(length, 0, 3);
    return bytes;
  };
  const short = Array.from({ length: 300 }, (_, at) => packet(at % 7));
  const long = Array.from({ length: 4 }, () => packet(0xffffff));
  for (const [packets, isRead] of [
    [[...short, ...long.slice(1), packet(9), ...short], true],
    [[...short, ...long, packet(100), ...short], false],
  ] as const) {
    const bytes = Buffer.concat(packets);
    const server = createServer((client) => {
      client.on("error", () => {});
      let at = 0;
      // Small pieces where the headers are, as a slow network would cut them.
      while (at < bytes.length) {
        const size = at < 2000 ? 1 + (at % 5) : MIB;
        client.write(bytes.subarray(at, at + size));
        at += size;
      }
      client.end();
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
    let read = 0;
    socket.on("data", (chunk) => {
      read += chunk.length;
    });
    guardReading(socket, framing);
    let failure: unknown;
    socket.on("error", (error) => {
      failure = error;
    });
    await new Promise((resolve) => socket.once("close", resolve));
    server.close();
    t.equal(failure === undefined, isRead);
    if (isRead) t.equal(read, bytes.length);
    else t.match(failure, { code: "query_too_complex" });
  }
});
