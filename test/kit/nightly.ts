/** Tests too long for each commit. `npm run test:nightly` runs them. */
const isNightly = process.env.GATEHOUSE_NIGHTLY === "1";

export const nightly = { skip: isNightly ? false : "npm run test:nightly" } as const;

/** All items at night; every third, with the first, at each commit. */
export function sampled<T>(items: readonly T[]): readonly T[] {
  return isNightly ? items : items.filter((_, at) => at % 3 === 0);
}

export function caseCount(eachCommit: number, eachNight: number): number {
  return isNightly ? eachNight : eachCommit;
}
