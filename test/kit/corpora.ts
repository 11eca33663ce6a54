import { existsSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const project = fileURLToPath(new URL("../..", import.meta.url));

/**
 * The directory of a public test corpus in `$GATEHOUSE_TEST_CORPORA` or in `shared/corpora` next to
 * the checkout. Undefined if it is missing; the test then uses only its own vectors.
 */
export function corpus(name: string): string | undefined {
  const corpora = process.env.GATEHOUSE_TEST_CORPORA ?? path.join(project, "../shared/corpora");
  const directory = path.join(corpora, name);
  return existsSync(directory) ? directory : undefined;
}
