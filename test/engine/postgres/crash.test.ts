import t from "tap";
import { crashUnderLoad, waitForServer } from "../crash.ts";
import { startOn } from "./kit.ts";
import { startPostgres } from "./server.ts";

t.test("while PostgreSQL is killed and comes back, no query is carried out twice", async (t) => {
  const server = await startPostgres(t);
  const { address } = await startOn(t, server.url());
  await crashUnderLoad(t, server, address);
});

t.test("an engine that is started before PostgreSQL waits for it", async (t) => {
  const server = await startPostgres(t);
  await server.stop();
  const { address } = await startOn(t, server.url());
  await waitForServer(t, server, address);
});
