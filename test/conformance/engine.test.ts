import { temporaryDirectory } from "../engine/kit.ts";
import { overEach } from "../engine/over-each.ts";
import { runCommand } from "../kit/process.ts";

overEach("the engine answers every case as it should be answered", async (t, fresh) => {
  const { engine } = await fresh(t);
  const home = temporaryDirectory(t);
  const flags = ["engine", "test", "--url", engine.address, "--level", "full"];
  const { code, stdout, stderr } = await runCommand(home, flags);
  t.equal(code, 0, stdout + stderr);
  t.match(stdout, /^\d+ cases at level full, 0 failed$/m);
});
