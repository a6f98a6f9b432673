//! Errors of opening a store.

#[cfg(feature = "sqlite")]
mod sqlite {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;
    use universal_executor::SqliteStore;
    use universal_executor::store::SqliteError;

    /// A temporary folder, which is deleted at the end of a test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("ux-messages-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path.canonicalize().unwrap())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    async fn refused(path: impl Into<PathBuf>) -> String {
        let opened = SqliteStore::open(path).await;
        opened.map(drop).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_file_in_a_missing_folder_is_named_with_the_things_to_check() {
        let folder = Folder::new("missing");
        let path = folder.0.join("nowhere/agents.db");

        let error = refused(&path).await;

        let expected = format!(
            "cannot open the SQLite database at {path:?}; check the folder and the permissions of the file"
        );
        assert_eq!(error, expected);
    }

    #[tokio::test]
    async fn a_file_of_another_kind_is_named_with_the_remedy() {
        let folder = Folder::new("foreign");
        let path = folder.0.join("diary.txt");
        fs::write(&path, "no database, but a diary ".repeat(100)).unwrap();

        let error = refused(&path).await;

        let expected = format!(
            "the file {path:?} is not a SQLite database of this crate, or is damaged; use another file, or restore a backup"
        );
        assert_eq!(error, expected);
    }

    #[tokio::test]
    async fn a_read_only_file_is_named_with_the_remedy() {
        let folder = Folder::new("readonly");
        let path = folder.0.join("agents.db");
        fs::write(&path, "").unwrap();
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();

        let error = refused(&path).await;

        let expected = format!(
            "cannot open the SQLite database at {path:?}: the file is read-only; make the file and its folder writable"
        );
        assert_eq!(error, expected);
    }

    #[tokio::test]
    async fn a_name_that_is_no_path_is_quoted_with_the_store_to_use() {
        let error = refused(":memory:").await;

        let expected = "cannot open the SQLite database at \":memory:\": the name is not a file path; use MemoryStore for a store in memory";
        assert_eq!(error, expected);
    }

    #[test]
    fn an_error_that_depends_on_the_machine_has_the_file_and_the_remedy_too() {
        let newer = SqliteError::NewerSchema {
            path: "/data/agents.db".into(),
            found: 99,
            known: 14,
        };
        let unavailable = SqliteError::Unavailable {
            retry_after: Duration::from_secs(1),
            source: "database is locked".into(),
        };

        let expected = "the SQLite database at \"/data/agents.db\" has schema version 99, and this program supports versions up to 14; update this program";
        assert_eq!(newer.to_string(), expected);
        let expected = "the SQLite database is unavailable: another process locks the file, the disk fails or the system has no free threads; retry, or fix the cause";
        assert_eq!(unavailable.to_string(), expected);
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::time::Duration;
    use universal_executor::PostgresStore;
    use universal_executor::store::PostgresError;

    async fn refused(url: &str, schema: &str) -> String {
        let connected = PostgresStore::builder(url).schema(schema).connect().await;
        connected.map(drop).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_setting_is_checked_before_the_connection() {
        for (url, schema, expected) in [
            (
                "mysql://127.0.0.1:1/db",
                "ux",
                "invalid PostgreSQL connection string; check its scheme, user, host, port, database and options",
            ),
            (
                "postgres://127.0.0.1:1/db",
                "Agents",
                "invalid PostgreSQL schema name \"Agents\"; use 1 to 40 of the characters a-z, 0-9 and _, and no digit at the start",
            ),
            (
                "postgres://127.0.0.1:1/db?target_session_attrs=any",
                "ux",
                "the connection string has the unsupported parameter \"target_session_attrs\" (number 1 of the query); remove it, or percent-encode `?` and `&` in the password",
            ),
        ] {
            assert_eq!(refused(url, schema).await, expected);
        }
    }

    #[test]
    fn an_error_of_the_server_says_what_to_check() {
        let unavailable = PostgresError::Unavailable {
            retry_after: Duration::from_secs(1),
            source: "connection refused".into(),
        };
        let refused = PostgresError::Refused("password authentication failed".into());

        let expected = "the PostgreSQL server is unavailable; check the host and the port, and that the server runs and has a free connection";
        assert_eq!(unavailable.to_string(), expected);
        let expected = "the PostgreSQL server refused the connection or the creation of the store's tables; check user, password, database and privileges";
        assert_eq!(refused.to_string(), expected);
    }
}
