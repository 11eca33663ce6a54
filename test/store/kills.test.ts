import t from "tap";
import { caseCount } from "../kit/nightly.ts";
import { killReplicas } from "./faults/kills.ts";

/** Kills of replicas; before each, at least one user is made. */
const KILLS = caseCount(2, 12);

t.test("kills of replicas under writes lose nothing that was acknowledged", async (t) => {
  const { users, lost, gaps } = await killReplicas(t, KILLS);
  t.ok(users >= KILLS, `${users} users`);
  t.strictSame(lost, []);
  t.equal(gaps, 0, "the log has no gaps");
});
