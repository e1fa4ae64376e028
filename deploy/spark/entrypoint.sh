#!/bin/sh
# The entry point of the image with Spark. Spark on Kubernetes starts its pods with `driver` or `executor`;
# everything else is a command of koff.
set -eu
case "${1-}" in
driver)
  shift
  exec spark-submit --deploy-mode client \
    --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
    --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" "$@"
  ;;
executor)
  # Spark passes the options of Java as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ...
  set --
  number=0
  while option=$(printenv "SPARK_JAVA_OPT_$number"); do
    set -- "$@" "$option"
    number=$((number + 1))
  done
  home=$(echo /opt/koff/lib/python3*/site-packages/pyspark)
  exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$home/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
*) exec koff "$@" ;;
esac
