/** Options of a test that only `npm run test:nightly` runs. */
const isNightly = process.env.GATEHOUSE_NIGHTLY === "1";

export const nightly = { skip: isNightly ? false : "npm run test:nightly" } as const;

/**
 * All items in the nightly tests; otherwise the first and some after it.
 *
 * @param each one of this many is in the tests of each commit
 */
export function sampled<T>(items: readonly T[], each = 3): readonly T[] {
  return isNightly ? items : items.filter((_, at) => at % each === 0);
}

export function caseCount(eachCommit: number, eachNight: number): number {
  return isNightly ? eachNight : eachCommit;
}
