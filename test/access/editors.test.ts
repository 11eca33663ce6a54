import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import t from "tap";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { accessFile } from "./kit.ts";
import { holding, watched } from "./watched.ts";

/** What operators edit with, told to make ReadOnly a ReadWrite; each has its own way to save. */
const editors: Record<string, string[]> = {
  sed: ["-i", 's/"ReadOnly"/"ReadWrite"/'],
  vim: ["-es", "-u", "NONE", "-c", '%s/"ReadOnly"/"ReadWrite"/', "-c", "wq"],
  ex: ["-s", "-u", "NONE", "-c", '%s/"ReadOnly"/"ReadWrite"/', "-c", "wq"],
  perl: ["-pi", "-e", 's/"ReadOnly"/"ReadWrite"/'],
};

function isInstalled(editor: string): boolean {
  return spawnSync("sh", ["-c", `command -v ${editor}`]).status === 0;
}

const installed = Object.entries(editors).filter(([editor]) => isInstalled(editor));

t.test("some editor is here to try", (t) => {
  t.not(installed.length, 0);
  t.end();
});

for (const [editor, flags] of installed) {
  t.test(`what ${editor} saves is in force`, async (t) => {
    const file = accessFile(t, holding("ReadOnly"));
    const access = await watched(t, file);
    const { status } = spawnSync(editor, [...flags, file], { timeout: PATIENCE_MS });
    t.equal(status, 0);
    await access.untilRole("ReadWrite");
    t.equal(readFileSync(file, "utf8"), holding("ReadWrite"));
  });
}
