import t from "tap";
import { nightly } from "../kit/nightly.ts";
import { Fleet, SteadyLoad } from "./fleet.ts";
import { findProgram } from "./programs.ts";

/** Restarts of each replica; to set it: `ROUNDS=20 npx tap run test/deploy/rolling.test.ts`. */
const ROUNDS = Number(process.env.ROUNDS ?? 1);

const haproxy = findProgram("haproxy");

if (haproxy !== undefined) {
  t.test("restarting replicas in turn fails no request", nightly, async (t) => {
    const fleet = await Fleet.start(t, haproxy);
    const load = new SteadyLoad(fleet.client);
    for (let round = 0; round < ROUNDS; round++) {
      for (const index of fleet.replicas.keys()) {
        await load.waitForMore();
        await fleet.restart(index);
      }
    }
    await load.waitForMore();
    await load.stop();
    t.strictSame(load.failed, []);
    t.comment(`${load.count} requests`);
  });
}
