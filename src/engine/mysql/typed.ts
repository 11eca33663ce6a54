import driver, { type TypedParameterValue } from "mysql2";

const { LONGLONG } = driver.TypedParameter;

/** A whole number as the server's own, bound with its type; -2^63 to 2^63 - 1. */
export function signed(integer: bigint): TypedParameterValue {
  return LONGLONG(integer);
}

/** The same from 0 to 2^64 - 1. */
export function unsigned(integer: bigint): TypedParameterValue {
  return LONGLONG.unsigned(integer);
}
