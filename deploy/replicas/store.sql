-- Creates the role of the store, which owns the schema `gatehouse` in its own database and can do
-- nothing else. Run it as a user who may create roles and databases:
--
--   psql -h db.example.com -U postgres -f store.sql
--
-- The password comes from the file named by $STORE_PASSWORD_FILE, by default ./store-password.
\set ON_ERROR_STOP on
\set password `cat "${STORE_PASSWORD_FILE:-store-password}"`
create role gatehouse login password :'password'
  nosuperuser nocreatedb nocreaterole noreplication noinherit nobypassrls;
-- The defaults of PostgreSQL, on which the store relies. Other servers may have their own.
alter role gatehouse set default_transaction_isolation = 'read committed';
alter role gatehouse set default_transaction_read_only = off;
alter role gatehouse set datestyle = 'ISO';
alter role gatehouse set extra_float_digits = 1;
create database gatehouse;
revoke all on database gatehouse from public;
grant connect on database gatehouse to gatehouse;
\connect gatehouse
revoke all on schema public from public;
create schema gatehouse authorization gatehouse;
