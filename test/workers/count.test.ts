import { availableParallelism } from "node:os";
import t from "tap";
import { configurationSchema } from "../../src/config/schema.ts";
import { configurationOf, workerCount } from "../../src/workers/count.ts";

const numbers = [1, 2, 3];

t.test("what is bounded for the whole gateway is divided without rest", (t) => {
  const configuration = configurationSchema.parse({
    server: { workers: 3, max_buffered_bytes: 100_000_001 },
    upstream: { connections: 64 },
  });
  const shares = numbers.map((number) => configurationOf(configuration, 3, number));
  const bodies = shares.map(({ server }) => server.max_buffered_bytes);
  t.strictSame(bodies, [33_333_334, 33_333_334, 33_333_333]);
  t.strictSame(
    shares.map(({ upstream }) => upstream.connections),
    [22, 21, 21],
  );
  t.end();
});

t.test("0 means one for each core, as long as there is something for each", (t) => {
  const count = (content: object) =>
    workerCount(configurationSchema.parse({ server: { workers: 0 }, ...content }), "linux");
  t.equal(count({}), Math.min(25, availableParallelism()));
  t.equal(count({ upstream: { connections: 1 } }), 1);
  const server = { workers: 0, max_body_bytes: 100, max_buffered_bytes: 199 };
  t.equal(count({ server }), 1);
  t.end();
});

t.test("a system that shares no port among processes serves from one", (t) => {
  const of = (workers: number) =>
    configurationSchema.parse({ server: { workers, max_body_bytes: 1000 } });
  t.equal(workerCount(of(0), "darwin"), 1);
  t.equal(workerCount(of(1), "darwin"), 1);
  t.throws(() => workerCount(of(2), "darwin"), /server\.workers: darwin .* set it to 1/);
  t.equal(workerCount(of(64), "linux"), 64);
  t.end();
});
