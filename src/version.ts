import { readFileSync } from "node:fs";
import * as z from "zod";

const packageFile = new URL("../package.json", import.meta.url);
const shape = z.object({ version: z.string() });

/** The version of this gateway. */
export const { version } = shape.parse(JSON.parse(readFileSync(packageFile, "utf8")));
